/**
 * An import may only point down: apps -> services -> packages. A service never imports another service, a package imports
 * those that the table names, and nobody reaches into another workspace past its `exports`.
 * What a `.test.ts`, `.model.ts` or `test/` file imports is not shipped, so it may use any package (the explorer is one).
 */
import { existsSync } from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');
const LAYERS = ['packages', 'services', 'apps'];
/** What each package may import: the map of the packages. */
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
  auth: ['cache', 'client', 'config', 'custody', 'http', 'log', 'simd', 'telemetry', 'kernel', 'proto'],
  service: ['auth', 'config', 'ingress', 'log', 'telemetry', 'kernel', 'proto'],
};
const TEST_FILE = /(\.test|\.model)\.ts$|[/\\]test[/\\]/;
const TEST_ONLY_PACKAGES = new Set(['explorer']);

/** The workspace that holds a file: `{ layer, name }`, or undefined outside of the three layers. */
function workspaceOf(filename) {
  const match = new RegExp(`(?:^|[\\\\/])(${LAYERS.join('|')})[\\\\/]([^\\\\/]+)[\\\\/]`).exec(filename);
  return match ? { layer: match[1], name: match[2] } : undefined;
}

function layerOf(name) {
  return LAYERS.find((layer) => existsSync(join(ROOT, layer, name, 'package.json')));
}

/** Why `from` may not import `to`, or undefined when it may. */
function refusal(from, to, toLayer, isTest) {
  if (to === from.name) return undefined;
  if (toLayer === undefined) return 'it is not a workspace of this project';
  if (toLayer !== 'packages' && from.layer === 'packages') return 'a package knows no service and no app';
  if (toLayer !== 'packages' && from.layer === 'services')
    return 'a service calls another one over HTTP, through client';
  if (isTest) return undefined;
  if (TEST_ONLY_PACKAGES.has(to)) return 'it is for tests and models only';
  if (from.layer !== 'packages' || BELOW[from.name]?.includes(to)) return undefined;
  return `it is not below ${from.name} in the table of tools/oxlint-ron/boundaries.js`;
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
      if (target.layer === from.layer && target.name === from.name) return undefined;
      return 'another workspace is imported by its name';
    };
    return {
      ImportDeclaration: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
      ImportExpression: check,
    };
  },
};
