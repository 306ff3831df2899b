// Figures of the overview by server-sent events. Without it, and while there is no stream, htmx updates the page.
(() => {
  const live = () => document.getElementById("live");
  const path = live()?.dataset.events;
  if (!path) return;
  let source = null;
  let notices = null;
  const show = (event) => {
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
  const close = () => { source?.close(); source = null; };
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(path);
    source.addEventListener("figures", show);
    // The session has ended: the page to sign in is shown.
    source.addEventListener("end", () => { close(); location.reload(); });
  };
  // Nobody looks at a hidden page.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
})();
