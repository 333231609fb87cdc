// The keys j and k: in a list of calls to the next call and back, on the page of a call to the older and the newer one.
'use strict';
(() => {
  const TYPED = 'input, textarea, select, [contenteditable]:not([contenteditable="false"]), [role="textbox"]';

  // In a list, Enter opens the call whose link has the focus.
  function moveInList(rows, isDown) {
    const at = rows.indexOf(document.activeElement.closest('tr'));
    const next = at < 0 ? 0 : Math.min(Math.max(at + (isDown ? 1 : -1), 0), rows.length - 1);
    rows[next].querySelector('th a').focus();
    rows[next].scrollIntoView({ block: 'nearest' });
  }

  document.addEventListener('keydown', (event) => {
    const isDown = event.key === 'j';
    if (!isDown && event.key !== 'k') return;
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (event.target.closest?.(TYPED)) return;
    const rows = [...document.querySelectorAll('.mcp-calls tbody tr')];
    const link = document.querySelector(`.mcp-beside a[rel="${isDown ? 'next' : 'prev'}"]`);
    if (!rows.length && !link) return;
    event.preventDefault();
    if (rows.length) moveInList(rows, isDown);
    else link.click();
  });
})();
