/**
 * An import may only point down: apps -> services -> packages. A service never imports another service, a package imports
 * only the packages that the table names, and another workspace is imported only through its `exports`.
 * Within a service, domain code never imports `routes.ts` or `routes/`: routes depend on the domain.
 * A `.test.ts`, `.model.ts`, `test/` or `testing/` file is not shipped and may import any package. The packages for tests
 * (explorer, testkit) may be imported by such files only.
 */
import { existsSync } from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');
const LAYERS = ['packages', 'services', 'apps'];
/** The packages that each package may import. */
const BELOW = {
  proto: [],
  kernel: [],
  simd: [],
  explorer: ['kernel'],
  cache: ['kernel'],
  config: ['kernel'],
  telemetry: ['kernel'],
  http: ['kernel'],
  log: ['kernel'],
  egress: ['http', 'kernel'],
  custody: ['egress', 'log', 'kernel'],
  tlog: ['egress', 'log', 'kernel'],
  cas: ['cache', 'log', 'simd', 'kernel', 'proto'],
  durability: ['cas', 'log', 'simd', 'kernel', 'proto'],
  client: ['simd', 'kernel', 'proto'],
  ingress: ['config', 'telemetry', 'http', 'log', 'kernel', 'proto'],
  pages: ['ingress', 'kernel'],
  auth: ['cache', 'client', 'config', 'custody', 'http', 'log', 'simd', 'telemetry', 'kernel', 'proto'],
  service: ['auth', 'config', 'ingress', 'log', 'telemetry', 'kernel', 'proto'],
};
const TEST_FILE = /(\.test|\.model)\.ts$|[/\\]test(?:ing)?[/\\]/;
const TEST_ONLY_PACKAGES = new Set(['explorer', 'testkit']);
/** The HTTP surface of a service. */
const ROUTES = /[/\\]src[/\\]routes(?:\.ts$|[/\\])/;
/** The files of a service that may import its routes, besides the routes themselves. */
const ROUTES_USER = /[/\\]src[/\\](?:service|main|index)\.ts$/;

/** The workspace of a file as `{ layer, name }`; undefined outside of the three layers. */
function workspaceOf(filename) {
  const match = new RegExp(`(?:^|[\\\\/])(${LAYERS.join('|')})[\\\\/]([^\\\\/]+)[\\\\/]`).exec(filename);
  return match ? { layer: match[1], name: match[2] } : undefined;
}

function layerOf(name) {
  return LAYERS.find((layer) => existsSync(join(ROOT, layer, name, 'package.json')));
}

/** The reason why `from` must not import `to`; undefined if it may. */
function refusal(from, to, toLayer, isTest) {
  if (to === from.name) return undefined;
  if (toLayer === undefined) return 'it is not a workspace of this project';
  if (toLayer !== 'packages' && from.layer === 'packages') return 'a package must not depend on a service or an app';
  if (toLayer !== 'packages' && from.layer === 'services')
    return 'a service calls another one over HTTP, through client';
  if (isTest) return undefined;
  if (TEST_ONLY_PACKAGES.has(to)) return 'it is only for tests and models';
  if (from.layer !== 'packages' || BELOW[from.name]?.includes(to)) return undefined;
  return `the table in tools/oxlint-ron/boundaries.js does not list it for ${from.name}`;
}

export const boundaries = {
  meta: {
    type: 'problem',
    messages: { boundary: '{{from}} must not import {{to}}: {{why}}' },
  },
  create(context) {
    const from = workspaceOf(context.filename);
    if (from === undefined) return {};
    const isTest = TEST_FILE.test(context.filename) || (from.layer === 'packages' && TEST_ONLY_PACKAGES.has(from.name));
    const check = (node) => {
      const source = node.source?.value;
      if (typeof source !== 'string') return;
      const why = source.startsWith('.') ? relativeRefusal(source) : packageRefusal(source);
      if (why === undefined) return;
      context.report({ node, messageId: 'boundary', data: { from: `${from.layer}/${from.name}`, to: source, why } });
    };
    const packageRefusal = (source) => {
      const match = /^@ron\/([^/]+)(\/.*)?$/.exec(source);
      return match ? refusal(from, match[1], layerOf(match[1]), isTest) : undefined;
    };
    const relativeRefusal = (source) => {
      const target = workspaceOf(resolve(dirname(context.filename), source) + sep);
      if (target === undefined) return undefined;
      if (target.layer === from.layer && target.name === from.name) return routesRefusal(source);
      return 'import another workspace by its package name';
    };
    const routesRefusal = (source) => {
      if (from.layer !== 'services' || isTest) return undefined;
      const isRoutes = ROUTES.test(resolve(dirname(context.filename), source));
      if (!isRoutes || ROUTES.test(context.filename) || ROUTES_USER.test(context.filename)) return undefined;
      return 'domain code does not know its routes: move the shared part below them';
    };
    return {
      ImportDeclaration: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
      ImportExpression: check,
    };
  },
};
