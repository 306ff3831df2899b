// Contact of a page with the gateway: figures of the overview by server-sent events, other live pages by htmx. The time of the last update is shown, and a lost contact is reported. Without this script, htmx updates the page.
(() => {
  const live = () => document.getElementById("live");
  if (!live()) return;
  const path = live().dataset.events;
  const updated = document.getElementById("updated");
  const lost = document.getElementById("lost");
  // Milliseconds: silence after which the contact is lost, with events and with updates by htmx; bounds of the delay before a new stream.
  const EVENT_SILENCE = 6_000, UPDATE_SILENCE = 20_000, FIRST_DELAY = 1_000, MAX_DELAY = 15_000;
  let source = null, timer = null, delay = FIRST_DELAY, notices = null;
  // Times of the last update, and since when updates are expected; the browser updates no hidden page.
  let last = Date.now(), expected = Date.now();
  const clock = (time) => `${new Date(time).toISOString().slice(11, 19)} UTC`;
  const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const report = (isLost) => {
    say(lost, isLost ? lost.dataset.text.replace("{0}", clock(last)) : "");
    lost.classList.toggle("error", isLost);
    lost.classList.toggle("notice", isLost);
    document.body.classList.toggle("stale", isLost);
  };
  const heard = () => {
    last = Date.now();
    say(updated, updated.dataset.text.replace("{0}", clock(last)));
    report(false);
  };
  const show = (event) => {
    heard();
    delay = FIRST_DELAY;
    const figures = JSON.parse(event.data);
    const tiles = live().querySelectorAll(".tile");
    figures.tiles.forEach(([value, detail, state, exact], index) => {
      const tile = tiles[index];
      if (!tile) return;
      tile.className = `tile ${state}`;
      tile.querySelector(".value").textContent = value;
      tile.querySelector(".value").title = exact;
      tile.querySelector("small").textContent = detail;
    });
    const now = figures.notices.join("\n");
    if (notices !== null && notices !== now) htmx.trigger(live(), "refresh");
    notices = now;
  };
  const close = () => {
    source?.close();
    clearTimeout(timer);
    source = timer = null;
  };
  // Opens a stream again after a growing delay: a browser itself gives up after an error status, such as that of a proxy during a restart. Meanwhile htmx reads the page, which also ends a page without a session.
  const retry = () => {
    close();
    htmx.trigger(live(), "refresh");
    timer = setTimeout(open, delay * (0.8 + 0.4 * Math.random()));
    delay = Math.min(delay * 2, MAX_DELAY);
  };
  const open = () => {
    if (!path || source || document.hidden) return;
    clearTimeout(timer);
    expected = Date.now();
    source = new EventSource(path);
    source.addEventListener("figures", show);
    source.addEventListener("error", retry);
    // The session has ended: the page to sign in is shown.
    source.addEventListener("end", () => { close(); location.reload(); });
  };
  const watch = () => {
    if (document.hidden) return;
    const silence = Date.now() - Math.max(last, expected);
    if (silence > (source ? EVENT_SILENCE : UPDATE_SILENCE)) report(true);
    if (source && silence > 2 * EVENT_SILENCE) retry();
  };
  addEventListener("htmx:afterRequest", (event) => (event.detail.successful ? heard() : report(true)));
  // Nobody looks at a hidden page.
  document.addEventListener("visibilitychange", () => {
    expected = Date.now();
    if (document.hidden) close(); else open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  setInterval(watch, 1_000);
  updated.hidden = false;
  heard();
  open();
})();
