// Starts the UI: who is there, the stream, the keys, and the page for the address.
import { html, render } from "./vendor/preact.js";
import { addCommands } from "./commands.js";
import { noteLost, recoveries, startPings } from "./connection.js";
import { Layout } from "./components/layout.js";
import { bindKey, startKeys } from "./keys.js";
import { pages } from "./pages/index.js";
import { href, navigate, startRouter } from "./router.js";
import { loadMe, me, signOut } from "./session.js";
import { startStream } from "./stream.js";
import { switchTheme } from "./theme.js";
import { switchZone } from "./time.js";

startRouter();
startKeys();
const shown = pages.filter((page) => page.nav);
for (const page of shown) bindKey(`g ${page.key}`, page.nav, () => navigate(page.path));
addCommands(() => shown.map((page) => ({ words: page.nav, hint: `g ${page.key}`, call: () => navigate(page.path) })));
addCommands((typed) => {
  const key = typed.trim();
  return key ? [{ words: `Explain ${key}`, hint: "why it ran, or not", otherwise: true, call: () => navigate(href("/explain", { key })) }] : [];
});
addCommands(() => [
  { words: "Switch between dark and light", hint: "theme", call: switchTheme },
  { words: "Switch between local time and UTC", hint: "time zone", call: switchZone },
  ...(me.value?.way === "token" ? [{ words: "Sign out", hint: me.value.name, call: signOut }] : []),
]);

render(html`<${Layout} />`, document.getElementById("app"));
loadMe().catch(noteLost);
recoveries.subscribe((times) => times && loadMe().catch(noteLost));
startStream();
startPings();
