// The frame around every page: navigation, state of the connection, switches, banner, toasts, palette and help.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Banner } from "./banner.js";
import { HelpDialog, Palette } from "./palette.js";
import { LiveState } from "./live_state.js";
import { Failed, Loading, NoPage } from "./states.js";
import { SignIn } from "./sign_in.js";
import { reveal } from "./tabs.js";
import { Toasts } from "./toast.js";
import { wholeModule } from "../connection.js";
import { overlay } from "../keys.js";
import { pages } from "../pages/index.js";
import { route } from "../router.js";
import { me, signInReason } from "../session.js";
import { switchTheme, theme } from "../theme.js";
import { switchZone, zone, zoneName } from "../time.js";

export function Layout() {
  return html`
    <a class="skip" href="#content">Skip to the content</a>
    <${Header} />
    <${Banner} />
    <div class="frame">
      <${Navigation} />
      <main id="content" tabindex="-1">${signInReason.value ? html`<${SignIn} />` : me.value ? html`<${CurrentPage} />` : html`<${Loading} />`}</main>
    </div>
    <${Toasts} />
    ${overlay.value === "palette" && html`<${Palette} />`}
    ${overlay.value === "help" && html`<${HelpDialog} />`}
  `;
}

function Header() {
  const other = theme.value === "dark" ? "light" : "dark";
  return html`<header class="top">
    <a class="brand" href="/"><span class="mark" aria-hidden="true"></span>Harken</a>
    <button class="find" onClick=${() => (overlay.value = "palette")}>
      <span>Go to or do…</span><kbd>Ctrl K</kbd>
    </button>
    <div class="switches">
      <${LiveState} />
      <button class="quiet" onClick=${switchZone} title="Show times in ${zone.value === "utc" ? "local time" : "UTC"}">
        <span class="sr">Times are in </span>${zoneName()}
      </button>
      <button class="quiet" onClick=${switchTheme} aria-label="Use the ${other} theme">
        <span class="theme-mark" aria-hidden="true"></span>
      </button>
      <button class="quiet wide-only" onClick=${() => (overlay.value = "help")} aria-label="Show the keys">?</button>
    </div>
  </header>`;
}

function Navigation() {
  const { path } = route.value;
  const current = (page) => (page.path === "/" ? path === "/" : path === page.path || path.startsWith(`${page.path}/`));
  const frame = useRef(null);
  useEffect(() => reveal(frame.current, "[aria-current]"), [path]);
  return html`<nav ref=${frame} class="side" aria-label="Pages">
    ${pages.filter((page) => page.nav).map(
      (page) => html`<a key=${page.path} href=${page.path} aria-current=${current(page) ? "page" : undefined}>${page.nav}</a>`,
    )}
    ${me.value?.way === "token" && html`<p class="who">${me.value.name}<br /><span>${me.value.role}</span></p>`}
  </nav>`;
}

/** Loads the module of the page. An address of the same page with other parameters keeps its component. */
function CurrentPage() {
  const { page, params } = route.value;
  const [loaded, setLoaded] = useState({});
  useEffect(() => {
    if (!page) return undefined;
    document.title = `${page.title ?? page.nav} · Harken`;
    let current = true;
    // a page that comes after somebody has gone on must not take the place of the one that is shown
    const show = (found) => current && setLoaded({ page, ...found });
    wholeModule(page.load()).then((module) => show({ Page: module.default }), (error) => show({ error }));
    return () => (current = false);
  }, [page]);
  useEffect(() => {
    // after a page was opened by a link, a screen reader begins at its top
    if (page && document.activeElement === document.body) document.getElementById("content")?.focus({ preventScroll: true });
  }, [loaded.page]);
  if (!page) return html`<${NoPage} />`;
  if (loaded.error) {
    return html`<${Failed} error=${{ message: "This page could not be loaded", fix: "Harken may have been updated: load the page again" }}
      retry=${() => location.reload()} />`;
  }
  if (loaded.page !== page) return html`<${Loading} what="the page" />`;
  return html`<${loaded.Page} ...${params} />`;
}
