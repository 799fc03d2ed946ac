// Every page: its path, its name, the key after `g`, and the module that has it as `default`.
// A page without `nav` is reached from another one. The first path that fits decides.
export const pages = [
  { path: "/", nav: "Overview", key: "o", load: () => import("./overview.js") },
];
