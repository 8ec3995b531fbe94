/**
 * The modules that a page loads: all transitive imports of its entries, with types stripped.
 *
 * Contract: the result has exactly the files that the entries reach by `import`, `export ... from`, `import('...')` and
 * `new URL('./file', import.meta.url)`, and the files that the page names itself. Stripping keeps the position of every
 * character, so that stack traces show the positions of the sources. A module that imports a part of Node is refused with
 * the name of the importing file. Deterministic: the same sources give the same hash.
 * Bound: `FILES_MAX` files. It reads and compiles synchronously (about 0.2 s for 60 files), so it runs in a thread.
 */
import { createHash } from 'node:crypto';
// oxlint-disable-next-line ron/no-blocking-calls -- runs in a thread
import { readFileSync, realpathSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { PackageResolver } from './package-resolver.ts';

/** In a thread of its own, the warning that stripping is experimental would only confuse operators. */
if (!isMainThread) process.removeAllListeners('warning');

const FILES_MAX = 1024;
const HASH_LENGTH = 22;
const MEDIA_TYPES: Readonly<Record<string, string>> = {
  ts: 'text/javascript; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  wasm: 'application/wasm',
};

/** `import x from 'a'`, `export * from 'a'` and `import 'a'`, at the start of a statement. */
const STATIC_IMPORT = /(?:^|[;}])\s*(?:import|export)\s*(?:[\w$*{}\s,]*?\bfrom\s*|(?<=import\s*))(["'])([^"'\n]+)\1/gm;
const DYNAMIC_IMPORT = /\bimport\s*\(\s*(["'])([^"'\n]+)\1\s*\)/g;
/** Types in JSDoc look like imports. */
const COMMENT = /\/\*\*[^]*?\*\/|^\s*\/\*[^]*?\*\/|^\s*\/\/.*$/gm;
const FILE_URL = /\bnew URL\(\s*(["'])(\.[^"'\n]+)\1\s*,\s*import\.meta\.url\s*\)/g;

export interface GraphInit {
  /** The directory above all files: URLs show paths relative to it. */
  readonly root: string;
  /** URLs of modules, by the name that the page uses for them. */
  readonly entries: Readonly<Record<string, string>>;
  /** URLs of files that are served as they are: style sheets, worker scripts. */
  readonly files: Readonly<Record<string, string>>;
}

export interface GraphFile {
  readonly media_type: string;
  readonly body: Uint8Array<ArrayBuffer>;
}

export interface ModuleGraph {
  /** Of names and contents of all files. */
  readonly hash: string;
  /** By path below the root. */
  readonly files: Readonly<Record<string, GraphFile>>;
  /** The paths of entries and files, by their names. */
  readonly paths: Readonly<Record<string, string>>;
  /** The paths of all modules that each entry imports statically, by the name of the entry. */
  readonly preload: Readonly<Record<string, readonly string[]>>;
  /** Bare specifiers, and paths. */
  readonly imports: Readonly<Record<string, string>>;
  /** The specifiers that are private to a package, by its path. */
  readonly scopes: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/** Thread function. */
export function buildGraph(init: GraphInit): ModuleGraph {
  return new GraphBuilder(init).build();
}

class GraphBuilder {
  readonly #init: GraphInit;
  readonly #root: string;
  readonly #resolver = new PackageResolver();
  readonly #files: Record<string, GraphFile> = {};
  /** Static imports, by path. */
  readonly #edges = new Map<string, readonly string[]>();
  readonly #imports: Record<string, string> = {};
  readonly #scopes: Record<string, Record<string, string>> = {};

  constructor(init: GraphInit) {
    this.#init = init;
    this.#root = realpathSync(init.root);
  }

  build(): ModuleGraph {
    const { entries, files } = this.#init;
    const paths: Record<string, string> = {};
    const preload: Record<string, readonly string[]> = {};
    for (const [name, url] of Object.entries(entries)) paths[name] = this.#addModules(placeOf(url));
    for (const [name, url] of Object.entries(files)) paths[name] = this.#addFile(placeOf(url));
    for (const name of Object.keys(entries)) preload[name] = this.#reachedFrom(paths[name]!);
    const imports = this.#imports;
    return { hash: this.#hash(), files: this.#files, paths, preload, imports, scopes: this.#scopes };
  }

  /** Adds a module and all that it reaches. */
  #addModules(entry: string): string {
    const pending = [entry];
    for (let file = pending.pop(); file !== undefined; file = pending.pop()) {
      const path = this.#pathOf(file);
      if (this.#edges.has(path)) continue;
      const code = this.#code(file);
      this.#add(path, file, Buffer.from(code));
      const statements = code.replaceAll(COMMENT, '');
      const importer = file;
      const resolved = (pattern: RegExp): string[] => {
        const found = specifiersIn(statements, pattern).filter((specifier) => isReal(specifier, importer));
        return found.map((specifier) => this.#resolve(specifier, importer));
      };
      const imported = resolved(STATIC_IMPORT);
      this.#edges.set(
        path,
        imported.map((each) => this.#pathOf(each)),
      );
      pending.push(...imported, ...resolved(DYNAMIC_IMPORT));
      for (const name of specifiersIn(statements, FILE_URL)) this.#addFile(join(dirname(file), name));
    }
    return this.#pathOf(entry);
  }

  #code(file: string): string {
    const source = readFileSync(file, 'utf8');
    return file.endsWith('.ts') ? stripTypeScriptTypes(source) : source;
  }

  #addFile(file: string): string {
    const path = this.#pathOf(file);
    this.#add(path, file, readFileSync(file));
    return path;
  }

  #add(path: string, file: string, body: Buffer): void {
    const media_type = MEDIA_TYPES[file.slice(file.lastIndexOf('.') + 1)];
    if (media_type === undefined) throw new Error(`${file}: no media type is known for this extension`);
    this.#files[path] = { media_type, body: new Uint8Array(body) };
    if (Object.keys(this.#files).length > FILES_MAX) throw new Error(`a page has at most ${FILES_MAX} files`);
  }

  #resolve(specifier: string, importer: string): string {
    const file = realpathSync(this.#resolver.resolve(specifier, importer));
    if (/^\.{0,2}\//.test(specifier)) return file;
    const path = this.#pathOf(file);
    if (specifier.startsWith('#')) {
      const scope = `${this.#pathOf(this.#resolver.packageOf(importer).dir)}/`;
      (this.#scopes[scope] ??= {})[specifier] = path;
      return file;
    }
    const known = (this.#imports[specifier] ??= path);
    if (known !== path) throw new Error(`${specifier} is installed twice: ${known} and ${path}`);
    return file;
  }

  /** Without `@`, which static files do not have in their names; relative imports stay valid. */
  #pathOf(file: string): string {
    const path = relative(this.#root, file);
    if (path.startsWith('..')) throw new Error(`${file} is not below ${this.#root}`);
    return path.split(sep).join('/').replaceAll('@', '_');
  }

  #reachedFrom(entry: string): string[] {
    const reached = new Set([entry]);
    for (const path of reached) for (const next of this.#edges.get(path) ?? []) reached.add(next);
    return [...reached];
  }

  #hash(): string {
    const hash = createHash('sha256');
    for (const path of Object.keys(this.#files).toSorted()) {
      const { body } = this.#files[path]!;
      hash.update(`${path}\n${body.length}\n`).update(body);
    }
    return hash.digest('base64url').slice(0, HASH_LENGTH);
  }
}

const placeOf = (url: string): string => realpathSync(fileURLToPath(url));

const specifiersIn = (code: string, pattern: RegExp): string[] =>
  Array.from(code.matchAll(pattern), ([, , specifier]) => specifier!);

/** Minified code of others contains text that looks like an import; a package name is at least a plausible one. */
function isReal(specifier: string, importer: string): boolean {
  return !importer.includes(`${sep}node_modules${sep}`) || /^[.#@\w-][\w./@-]*$/.test(specifier);
}
