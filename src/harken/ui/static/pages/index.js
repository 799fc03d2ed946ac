// Every page: its path, its name, the key after `g`, and the module that has it as `default`.
// A page without `nav` is reached from another one. The first path that fits decides.
export const pages = [
  { path: "/", nav: "Overview", key: "o", load: () => import("./overview.js") },
  { path: "/tickets", nav: "Tickets", key: "k", load: () => import("./tickets.js") },
  { path: "/workflows", nav: "Workflows", key: "w", load: () => import("./workflows.js") },
  { path: "/workflows/:name*", title: "Workflow", load: () => import("./workflow.js") },
  { path: "/integrations", nav: "Integrations", key: "i", load: () => import("./integrations.js") },
  { path: "/settings", nav: "Settings", key: "s", load: () => import("./settings.js") },
];
