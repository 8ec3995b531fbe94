/**
 * The files of a web page without a build step: our `.ts` modules with types stripped, the packages that they import, style
 * sheets, and an import map.
 *
 *   const entries = { map: new URL('./page/map.ts', import.meta.url) };
 *   const files = new PageFiles({ prefix: '/edge/map/files/', root, entries, files: {} });
 *   const built = await files.built(signal);        // at the first request; later calls return the same
 *   const headers = { 'Content-Security-Policy': `script-src ${built.script_src}` };
 *   text(200, 'text/html', `<head>${built.head('map')}</head>`, headers);
 *
 * Contract: serves exactly the files of the graph, under a path with the hash of all of them, as immutable. The graph is
 * built at the first use, in a thread that ends afterwards; gzip variants are made in the thread pool. A failed build is
 * tried again at the next use. No file is read later, so a changed file on disk is not mixed with older ones.
 * Bound: as `StaticFiles`. Concurrent first uses share one build. Overflow: a caller that has waited for `wait_ms` gets `not_ready`
 * with a time to try again, and the build goes on.
 * Cancellation: a caller's signal ends its wait, not the build; `close` ends the build.
 */
import { createHash } from 'node:crypto';
import { StaticFiles, bytes, type RouteAnswer } from '@ron/ingress';
import { BlockingPool, Deadline, onAbort, RonError, sched } from '@ron/kernel';
import { escapeHtml } from './html.ts';
import type { GraphInit, ModuleGraph } from './module-graph.ts';

export interface PageFilesInit {
  /** The path of all files, as in `/edge/map/files/`. */
  readonly prefix: string;
  /** The same path in links, as in `./files/` for pages beside it. Default `prefix`. */
  readonly href?: string;
  /** The directory above all files, such as the root of the project. */
  readonly root: URL;
  /** Modules of pages, by name. */
  readonly entries: Readonly<Record<string, URL>>;
  /** Other files, by name: style sheets, worker scripts. */
  readonly files: Readonly<Record<string, URL>>;
  /** How long a caller waits for the build. Default 3 s: less than the budget of a request. */
  readonly wait_ms?: number;
}

const WAIT_MS = 3000;
const RETRY_AFTER_MS = 1000;

export interface BuiltFiles {
  /** Import map, preloaded modules and the module of an entry, for the head of a page. */
  head(entry: string): string;
  /** The sources of scripts for a Content-Security-Policy: this server, WebAssembly, and the import map by its hash. */
  readonly script_src: string;
  /** The link to a named file. */
  hrefOf(name: string): string;
  /** The answer for a path below the prefix. Throws `not_found` for every other path. */
  answer(path: string): RouteAnswer;
}

export class PageFiles implements AsyncDisposable {
  readonly #init: PageFilesInit;
  readonly #closing = new AbortController();
  #building: Promise<BuiltFiles> | undefined;

  constructor(init: PageFilesInit) {
    this.#init = init;
  }

  async built(signal: AbortSignal): Promise<BuiltFiles> {
    signal.throwIfAborted();
    const building = (this.#building ??= this.#build());
    building.catch(() => this.#building === building && (this.#building = undefined));
    const left = sched.park<never>('pages.built');
    using due = Deadline.after('pages.built', this.#init.wait_ms ?? WAIT_MS, { signal });
    using _ = onAbort(due.signal, () => left.fail(signal.aborted ? signal.reason : notReady()));
    return await Promise.race([building, left.promise]);
  }

  async close(): Promise<void> {
    this.#closing.abort(new RonError('draining', 'the files of the page are closed'));
    await this.#building?.catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #build(): Promise<BuiltFiles> {
    const { prefix, href = prefix, root, entries, files } = this.#init;
    const { signal } = this.#closing;
    const init: GraphInit = { root: root.pathname, entries: hrefs(entries), files: hrefs(files) };
    const graph = await buildInThread(init, signal);
    const below = `${prefix}${graph.hash}/`;
    const named = Object.entries(graph.files).map(([path, { media_type, body }]) => {
      return [path, { media_type, body, headers: { 'Cache-Control': IMMUTABLE } }] as const;
    });
    const served = await StaticFiles.prepare({
      prefix: below,
      files: Object.fromEntries(named),
      codings: ['gzip'],
      signal,
    });
    return builtFiles(graph, `${href}${graph.hash}/`, served);
  }
}

const notReady = (): RonError =>
  new RonError('not_ready', 'the files of the page are being built: try again', { retry_after_ms: RETRY_AFTER_MS });

const IMMUTABLE = 'public, max-age=31536000, immutable';

async function buildInThread(init: GraphInit, signal: AbortSignal): Promise<ModuleGraph> {
  await using thread = new BlockingPool('pages', {
    threads: 1,
    queue_max: 0,
    module: new URL('./module-graph.ts', import.meta.url),
  });
  return await thread.run<ModuleGraph>('buildGraph', [init], signal);
}

const hrefs = (urls: Readonly<Record<string, URL>>): Record<string, string> =>
  Object.fromEntries(Object.entries(urls).map(([name, url]) => [name, url.href]));

function builtFiles(graph: ModuleGraph, below: string, served: StaticFiles): BuiltFiles {
  const map = importMap(graph, below);
  const hash = createHash('sha256').update(map).digest('base64');
  return {
    script_src: `'self' 'wasm-unsafe-eval' 'sha256-${hash}'`,
    head: (entry) => {
      const preload = graph.preload[entry]!.map((path) => `<link rel="modulepreload" href="${urlOf(below, path)}">`);
      const module = `<script type="module" src="${urlOf(below, graph.paths[entry]!)}"></script>`;
      return [`<script type="importmap">${map}</script>`, ...preload, module].join('\n');
    },
    hrefOf: (name) => `${below}${graph.paths[name]!}`,
    answer: (path) => {
      const entry = served.lookup(path);
      if (entry === undefined) throw new RonError('not_found', 'no such file');
      return bytes(entry.source);
    },
  };
}

const urlOf = (below: string, path: string): string => escapeHtml(`${below}${path}`);

/** As JSON in which no `<` can end the script element. */
function importMap({ imports, scopes }: ModuleGraph, below: string): string {
  const absolute = (paths: Readonly<Record<string, string>>): Record<string, string> =>
    Object.fromEntries(Object.entries(paths).map(([name, path]) => [name, `${below}${path}`]));
  const scoped = Object.entries(scopes).map(([scope, names]) => [`${below}${scope}`, absolute(names)]);
  const map = { imports: absolute(imports), scopes: Object.fromEntries(scoped) };
  return JSON.stringify(map).replaceAll('<', String.raw`\u003c`);
}
