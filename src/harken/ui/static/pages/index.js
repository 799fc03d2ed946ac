// Every page: its path, its name, the key after `g`, and the module that has it as `default`.
// A page without `nav` is reached from another one. The first path that fits decides.
export const pages = [
  { path: "/", nav: "Overview", key: "o", load: () => import("./overview.js") },
  { path: "/events", nav: "Events", key: "e", load: () => import("./events.js") },
  { path: "/events/:id", title: "Event", load: () => import("./event.js") },
  { path: "/triggers", nav: "Triggers", key: "t", load: () => import("./triggers.js") },
  { path: "/triggers/new", title: "New trigger", load: () => import("./builder.js") },
  { path: "/triggers/:name*", title: "Trigger", load: () => import("./trigger.js") },
  { path: "/runs", nav: "Runs", key: "r", load: () => import("./runs.js") },
  { path: "/runs/:id", title: "Run", load: () => import("./run.js") },
  { path: "/explain", nav: "Explain", key: "x", load: () => import("./explain.js") },
  { path: "/dead", nav: "Dead letters", key: "d", load: () => import("./dead.js") },
  { path: "/tickets", nav: "Tickets", key: "k", load: () => import("./tickets.js") },
  { path: "/workflows", nav: "Workflows", key: "w", load: () => import("./workflows.js") },
  { path: "/workflows/:name*", title: "Workflow", load: () => import("./workflow.js") },
  { path: "/integrations", nav: "Integrations", key: "i", load: () => import("./integrations.js") },
  { path: "/settings", nav: "Settings", key: "s", load: () => import("./settings.js") },
];
