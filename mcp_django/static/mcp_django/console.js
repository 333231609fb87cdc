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

// A choice on which the rest of the form depends is sent at once.
for (const form of document.querySelectorAll('.mcp-page form[data-submit]')) {
  for (const select of form.querySelectorAll('select')) select.addEventListener('change', () => form.requestSubmit());
}
// Names to choose from are put into the field by a click. Without this they can be typed.
for (const names of document.querySelectorAll('.mcp-page [data-names]')) {
  const field = document.getElementById(names.dataset.names);
  for (const item of names.querySelectorAll('li')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = item.textContent;
    button.addEventListener('click', () => {
      const lines = field.value.split('\n').filter(line => line.trim());
      field.value = [...lines, button.textContent].join('\n');
      if (button.textContent.endsWith('=')) field.focus();
    });
    item.replaceChildren(button);
  }
}
