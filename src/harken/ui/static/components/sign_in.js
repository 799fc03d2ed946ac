// Asks for a token where one is needed. It becomes a cookie that no script can read.
import { html, useState } from "../vendor/preact.js";
import { loginAddress, signIn, tokenFault } from "../session.js";

/** Opens the identity provider, and then this page again. */
function loginLink() {
  return `${loginAddress.value}?next=${encodeURIComponent(location.pathname + location.search)}`;
}

export function SignIn() {
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const reason = await signIn(token.trim()).catch(() => "Harken does not answer");
    setBusy(false);
    setWrong(reason);
  };
  return html`<form class="sign-in card" onSubmit=${submit}>
    <h1>Sign in</h1>
    <p>This Harken asks for a token${tokenFault() && `: ${tokenFault()}`}.</p>
    ${loginAddress.value && html`<p><a target="_self" href=${loginLink()}>Log in with your identity provider</a>, or use a token.</p>`}
    <label for="token">Token</label>
    <input id="token" type="password" autocomplete="current-password" spellcheck="false" placeholder="hkn_…" required
      aria-invalid=${wrong ? "true" : undefined} aria-describedby="token-help" value=${token}
      onInput=${(event) => setToken(event.target.value)} />
    ${wrong && html`<p class="wrong" role="alert">${wrong}</p>`}
    <p id="token-help" class="dim">Whoever runs this Harken makes one with: harken tokens create NAME --role viewer</p>
    <button class="primary" disabled=${busy}>Sign in</button>
  </form>`;
}
