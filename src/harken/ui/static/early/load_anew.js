// Runs before the modules do: when one of them never comes, the page loads itself anew, or says that it could not.
// A browser does not ask again for a module that failed, so without this an empty page would stay empty.
(() => {
  const RELOADED = "harken.reloaded";
  const RELOAD_MS = 60_000;
  const PATIENCE_MS = 15_000; // to start; on a slow line what has come by then is kept, and the second time is faster
  const ASK_MS = 5_000;
  const STYLE_MS = 1_000;

  /** Not again within a minute: a module that never loads must not become a page that flickers for ever. */
  window.loadAnew = () => {
    if (Date.now() - Number(sessionStorage.getItem(RELOADED) ?? 0) <= RELOAD_MS) return;
    // asking in vain must not put it off
    sessionStorage.setItem(RELOADED, String(Date.now()));
    location.reload();
  };

  const isStarted = () => document.getElementById("content") !== null;

  /** In words, at the place that the modules fill if they come after all. */
  function say() {
    const told = Object.assign(document.createElement("main"), { className: "stack" });
    const words = [
      ["h1", "This page could not be loaded"],
      ["p", "Its files did not come from Harken. It is tried again once a minute; “harken doctor” looks for the cause."],
    ];
    for (const [tag, text] of words) told.append(Object.assign(document.createElement(tag), { textContent: text }));
    const again = Object.assign(document.createElement("button"), { textContent: "Load it again" });
    again.addEventListener("click", () => location.reload());
    told.append(again);
    document.getElementById("app").append(told);
  }

  async function reloadIfAnswered() {
    if (isStarted()) return;
    // without an answer the browser would replace this page by an error of its own
    const answer = await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(ASK_MS) }).catch(() => null);
    // it may have started meanwhile, and somebody may be typing
    if (answer && !isStarted()) window.loadAnew();
  }

  let failed = false;
  function recover() {
    if (failed || isStarted()) return;
    failed = true;
    say();
    reloadIfAnswered();
    setInterval(reloadIfAnswered, ASK_MS);
  }

  /** A page without its styles can hardly be read. For these, a browser does ask again. */
  function styleAgain(sheet) {
    setTimeout(() => sheet.isConnected && sheet.replaceWith(sheet.cloneNode()), STYLE_MS);
  }

  function onError({ target }) {
    if (target?.type === "module") recover();
    else if (target?.rel === "stylesheet") styleAgain(target);
  }

  addEventListener("error", onError, true);
  setTimeout(recover, PATIENCE_MS);
})();
