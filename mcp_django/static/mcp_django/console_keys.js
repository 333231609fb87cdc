// The keys j and k: in a list of calls to the next call and back, on the page of a call to the older and the newer one.
// They act only where the focus is in the list, or in the links beside a call: elsewhere a letter that is said or hit by
// mistake does nothing.
'use strict';
(() => {
  // In a list, Enter opens the call whose link has the focus.
  function moveInList(rows, isDown) {
    const at = rows.indexOf(document.activeElement.closest('tr'));
    const next = at < 0 ? 0 : Math.min(Math.max(at + (isDown ? 1 : -1), 0), rows.length - 1);
    rows[next].querySelector('th a').focus();
    rows[next].scrollIntoView({ block: 'nearest' });
  }

  document.querySelector('.mcp-list, .mcp-beside')?.addEventListener('keydown', (event) => {
    const isDown = event.key === 'j';
    if (!isDown && event.key !== 'k') return;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const place = event.currentTarget;
    const rows = [...place.querySelectorAll('tbody tr')];
    if (rows.length) moveInList(rows, isDown);
    else place.querySelector(`a[rel="${isDown ? 'next' : 'prev'}"]`)?.click();
  });
})();
