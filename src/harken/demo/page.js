"use strict";
const live = document.getElementById("live");
const stopped = document.getElementById("stopped");

async function refresh() {
  try {
    const answer = await fetch(location.pathname, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    live.replaceChildren(...page.getElementById("live").childNodes);
    stopped.hidden = true;
  } catch {
    stopped.hidden = false;
  }
}

setInterval(() => document.hidden || refresh(), 1000);
