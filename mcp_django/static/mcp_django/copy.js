// A button beside each text that is there to be copied. Without this the text can be selected.
'use strict';
for (const text of document.querySelectorAll('[data-copy]')) {
  if (!navigator.clipboard) break;
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'copy';
  const say = (words) => {
    button.textContent = words;
    button.setAttribute('aria-label', `${words}: ${text.getAttribute('aria-label')}`);
  };
  say(text.dataset.copy);
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(text.textContent.trim());
    say(text.dataset.copied);
    setTimeout(say, 2000, text.dataset.copy);
  });
  text.after(button);
}
