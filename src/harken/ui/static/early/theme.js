// Runs before the first paint, so that a page never flashes in the other theme.
(() => {
  const chosen = localStorage.getItem("harken.theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
