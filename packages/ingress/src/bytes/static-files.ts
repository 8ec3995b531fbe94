/**
 * Static files in RAM, compressed once at start, such as the pages and scripts of the console.
 *
 * Contract: serves exactly the paths of the table, so no path can reach another file. Compressible files are kept in br and
 * gzip besides their own bytes, if that saves 5 % or more; `Accept-Encoding` selects one. Every variant has a strong tag
 * made of its bytes. A `hashed` file is served under a path that contains its hash, and may be cached forever; all
 * others are revalidated. Compression runs in the thread pool.
 * Bound: `FILES_MAX` files, `BYTES_MAX` of their bytes; a larger table is refused at start. Variants add less than twice
 * that.
 * Cancellation: `signal` ends the preparation between two files.
 *
 *   const files = await StaticFiles.prepare({ prefix: '/assets/', files: { 'app.js': { body, media_type, hashed: true } }, signal });
 *   const page = html(files.pathOf('app.js'));
 *   createIngress({ routes: [...files.routes(), ...others], fast: files, ... });
 */
import { assert, RonError } from '@ron/kernel';
import { FastEntry } from '../fast/fast-path.ts';
import type { FastSource } from '../fast/fast-path.ts';
import { bytes, route } from '../table/routes.ts';
import type { RouteAnswer, AnswerHeaders, Route } from '../table/routes.ts';

export interface StaticFile {
  readonly body: Uint8Array | string;
  readonly media_type: string;
  /** Serve it under a path with its hash, as immutable. Default false. */
  readonly hashed?: boolean;
  readonly headers?: AnswerHeaders;
}

export interface StaticFilesInit {
  /** The path of all files, as in `/assets/`. */
  readonly prefix: string;
  /** By name below the prefix. A name that begins with `/` is a whole path, as for the page at `/`. */
  readonly files: Readonly<Record<string, StaticFile>>;
  /** br takes about 3 s for a megabyte. Default both. */
  readonly codings?: readonly FileCoding[];
  readonly signal: AbortSignal;
}

export type FileCoding = 'br' | 'gzip';

const FILES_MAX = 4096;
const BYTES_MAX = 64 * 1024 * 1024;
const NAME = /^\/?(?:[A-Za-z0-9_-][A-Za-z0-9._-]*\/)*(?:[A-Za-z0-9_-][A-Za-z0-9._-]*)?$/;

export class StaticFiles implements FastSource {
  readonly route: string;
  readonly #prefix: string;
  readonly #entries = new Map<string, FastEntry>();
  readonly #paths = new Map<string, string>();

  private constructor(prefix: string) {
    this.#prefix = prefix;
    this.route = `GET ${prefix}*`;
  }

  static async prepare({ prefix, files, codings = ['br', 'gzip'], signal }: StaticFilesInit): Promise<StaticFiles> {
    assert(prefix.endsWith('/') && NAME.test(prefix), `${prefix} is a path that ends with a slash`);
    const names = Object.keys(files);
    assert(names.length <= FILES_MAX, `at most ${FILES_MAX} static files`);
    // Loaded here: services without static files start without the hash and compression libraries.
    const { hashOf, variantsOf } = await import('./file-variants.ts');
    const made = new StaticFiles(prefix);
    let total_bytes = 0;
    for (const name of names) {
      signal.throwIfAborted();
      assert(NAME.test(name), `${JSON.stringify(name)} is a name of plain segments`);
      const file = files[name]!;
      const body = Buffer.from(file.body);
      total_bytes += body.length;
      assert(total_bytes <= BYTES_MAX, `at most ${BYTES_MAX} bytes of static files`);
      const path = pathFor(prefix, name, file.hashed === true ? hashOf(body) : undefined);
      made.#entries.set(path, new FastEntry(await variantsOf(body, file, codings)));
      made.#paths.set(name, path);
    }
    return made;
  }

  /** The path under which a file of the table is served. */
  pathOf(name: string): string {
    const path = this.#paths.get(name);
    assert(path !== undefined, `${name} is a file of the table`);
    return path;
  }

  lookup(target: string): FastEntry | undefined {
    return this.#entries.get(target);
  }

  /** Rows for all files: one for the prefix, one for each whole path. */
  routes(): Route[] {
    const base = { method: 'GET', scope: null, lane: 'inline', body: 'none' } as const;
    const below = (params: unknown): string => `${this.#prefix}${(params as { '*'?: string })['*'] ?? ''}`;
    const summary = 'A static file.';
    const rows = [
      route({ ...base, path: `${this.#prefix}*`, summary, handler: ({ params }) => this.#answer(below(params)) }),
    ];
    for (const path of this.#entries.keys())
      if (!path.startsWith(this.#prefix))
        rows.push(route({ ...base, path, summary, handler: () => this.#answer(path) }));
    return rows;
  }

  #answer(path: string): RouteAnswer {
    const entry = this.#entries.get(path);
    if (entry === undefined) throw new RonError('not_found', 'no such file');
    return bytes(entry.source);
  }
}

function pathFor(prefix: string, name: string, hash: string | undefined): string {
  if (hash === undefined) return name.startsWith('/') ? name : `${prefix}${name}`;
  assert(!name.startsWith('/'), `${name}: a hashed file is below the prefix`);
  return `${prefix}${hash}/${name}`;
}
