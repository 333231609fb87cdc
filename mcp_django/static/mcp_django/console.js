// A button beside each text that is there to be copied. Without this the text can be selected.
'use strict';
for (const text of document.querySelectorAll('.mcp-page [data-copy]')) {
  if (!navigator.clipboard) break;
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'button';
  button.textContent = text.dataset.copy;
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(text.textContent.trim());
    button.textContent = text.dataset.copied;
    setTimeout(() => { button.textContent = text.dataset.copy; }, 2000);
  });
  text.parentElement.classList.add('copied');
  text.parentElement.append(button);
}
