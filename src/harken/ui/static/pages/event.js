// One event by itself.
import { html } from "../vendor/preact.js";
import { useKeys } from "../keys.js";
import { navigate } from "../router.js";
import { EventDetail } from "./event_detail.js";

export default function EventPage({ id }) {
  useKeys([["u", "Back to the events", () => navigate("/events")]]);
  return html`<p class="crumbs"><a href="/events">Events</a> / #${id}</p><div class="card"><${EventDetail} key=${id} id=${id} alone /></div>`;
}
