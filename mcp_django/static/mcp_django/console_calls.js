// How many calls came since the list was opened, and a click that adds them. Without this the list is what it was.
'use strict';
(() => {
  const EVERY = 5000;
  const place = document.querySelector('.mcp-new');
  if (!place) return;
  const link = place.querySelector('a');
  let timer = 0;

  async function ask() {
    timer = 0;
    if (document.hidden) return;
    try {
      const response = await fetch(`${place.dataset.url}&after=${place.dataset.after}`, { headers: { Accept: 'application/json' } });
      if (!response.ok || response.redirected) return;
      const found = await response.json();
      link.hidden = !found.count;
      if (link.textContent !== found.text) link.textContent = found.text;
    } catch { /* The next one may be answered. */ }
    wait();
  }

  function wait() {
    if (!timer) timer = setTimeout(ask, EVERY);
  }

  async function add(event) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    const body = document.querySelector('.mcp-calls tbody');
    if (!body) return;
    event.preventDefault();
    const response = await fetch(link.href);
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    const rows = [...page.querySelectorAll('.mcp-calls tbody tr')];
    const known = new Set([...body.rows].map((row) => row.dataset.pk));
    const added = rows.filter((row) => !known.has(row.dataset.pk));
    // With none of those that are here, some would be missing between.
    if (!rows.length || added.length === rows.length) { location.assign(link.href); return; }
    for (const row of added) row.classList.add('mcp-added');
    body.prepend(...added);
    place.dataset.after = page.querySelector('.mcp-new').dataset.after;
    link.hidden = true;
    (body.querySelector('a') || link).focus({ preventScroll: true });
  }

  link.addEventListener('click', add);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) ask(); });
  wait();
})();
