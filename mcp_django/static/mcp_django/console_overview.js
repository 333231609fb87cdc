// Lets people choose a range of the overview's time line: by dragging, or by the arrow keys with Shift.
'use strict';
(() => {
  const figure = document.getElementById('mcp-timeline');
  const bars = figure ? [...figure.querySelectorAll('a')] : [];
  if (!bars.length) return;
  const picture = bars[0].ownerSVGElement;
  const told = document.createElement('p');
  told.className = 'mcp-range';
  told.setAttribute('role', 'status');
  told.textContent = figure.dataset.hint;
  figure.append(told);
  // What is said of calls in each form of their number, and the form of each number.
  const forms = JSON.parse(figure.dataset.forms);
  const { formOf } = figure.dataset;
  const number = value => value.toLocaleString(document.documentElement.lang || undefined);
  // The bar at which the range begins, the one at which it ends, in either order, and whether a pointer chooses it.
  let anchor = bars.length - 1;
  let end = anchor;
  let isDragging = false;

  const chosen = () => bars.slice(Math.min(anchor, end), Math.max(anchor, end) + 1);

  function show() {
    const range = anchor === end ? [] : chosen();
    bars.forEach(bar => bar.classList.toggle('mcp-chosen', range.includes(bar)));
    if (!range.length) {
      told.textContent = figure.dataset.hint;
      return;
    }
    // An estimate has two digits, as on the page: a sample tells no more.
    const estimate = value => Number(value.toPrecision(2));
    const total = name => range.reduce((calls, bar) => calls + Number(bar.dataset[name]), 0);
    const sum = name => ('about' in figure.dataset ? estimate(total(name)) : total(name));
    const { begins } = range[0].dataset;
    const { ends } = range[range.length - 1].dataset;
    const calls = sum('calls');
    const form = forms[formOf[calls < formOf.length ? calls : 100 + (calls % 100)]];
    const text = form.replace('{calls}', number(calls)).replace('{failed}', number(sum('failed')));
    told.textContent = `${begins} – ${ends}: ${text}`;
  }

  function narrow() {
    const range = chosen();
    const parts = text => text.replace(/(:\d\d):00$/, '$1').split(' ');
    const [day, begins] = parts(range[0].dataset.begins);
    const [last, ends] = parts(range[range.length - 1].dataset.ends);
    const period = day === last ? `${day} ${begins}-${ends}` : `since ${day} ${begins} before ${last} ${ends}`;
    const query = [figure.dataset.query, period].filter(Boolean).join(' ');
    window.location.assign(`?${new URLSearchParams({ q: query })}`);
  }

  // One stop of the tab key: from bar to bar lead the arrow keys.
  function stop(place) {
    bars.forEach((bar, index) => bar.setAttribute('tabindex', index === place ? '0' : '-1'));
  }

  stop(anchor);
  picture.addEventListener('keydown', event => {
    const steps = { ArrowLeft: end - 1, ArrowRight: end + 1, Home: 0, End: bars.length - 1 };
    if (event.key in steps && !event.altKey && !event.ctrlKey && !event.metaKey) {
      end = Math.min(bars.length - 1, Math.max(0, steps[event.key]));
      if (!event.shiftKey) anchor = end;
      stop(end);
      bars[end].focus();
    } else if (event.key === 'Escape') {
      anchor = end;
    } else if (event.key === 'Enter' && anchor !== end) {
      narrow();
    } else {
      return;
    }
    event.preventDefault();
    show();
  });
  // Chromium gives an SVG that listens itself a stop of the tab key.
  figure.addEventListener('focusin', event => {
    const place = bars.indexOf(event.target.closest('a'));
    if (place >= 0 && place !== end) anchor = end = place;
  });

  function under(event) {
    const { left, width } = picture.getBoundingClientRect();
    const at = (100 * (event.clientX - left)) / width;
    const place = bars.findIndex(bar => {
      const { x, width: wide } = bar.firstElementChild;
      return at < x.baseVal.valueInSpecifiedUnits + wide.baseVal.valueInSpecifiedUnits;
    });
    return place < 0 ? bars.length - 1 : place;
  }

  picture.addEventListener('dragstart', event => event.preventDefault());
  picture.addEventListener('pointerdown', event => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    anchor = end = under(event);
    isDragging = true;
  });
  window.addEventListener('pointermove', event => {
    if (!isDragging) return;
    end = under(event);
    show();
  });
  window.addEventListener('pointerup', () => {
    if (isDragging && anchor !== end) narrow();
    isDragging = false;
  });
  window.addEventListener('pointercancel', () => {
    isDragging = false;
    anchor = end;
    show();
  });
  // The bar under which a pointer lets go is not what was meant.
  picture.addEventListener('click', event => anchor !== end && event.preventDefault());
})();
