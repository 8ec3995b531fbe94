/**
 * Resolves import specifiers as a browser needs them: by `exports` and `imports` of package.json, with the conditions
 * `browser`, `import` and `default`. Reads files synchronously: it runs in a thread.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- runs in a thread
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';

const CONDITIONS = new Set(['browser', 'import', 'default']);

type Target = string | null | { readonly [condition: string]: Target };

interface Manifest {
  readonly name?: string;
  readonly exports?: Target | Readonly<Record<string, Target>>;
  readonly imports?: Readonly<Record<string, Target>>;
  readonly module?: string;
  readonly main?: string;
}

interface Package {
  readonly dir: string;
  readonly manifest: Manifest;
}

export class PackageResolver {
  readonly #packages = new Map<string, Package>();

  /** The file that `specifier` names in the module `importer`. */
  resolve(specifier: string, importer: string): string {
    if (/^\.{0,2}\//.test(specifier)) return join(dirname(importer), specifier);
    if (specifier.startsWith('#')) {
      const { dir, manifest } = this.packageOf(importer);
      return join(dir, chosen(manifest.imports?.[specifier], specifier, importer));
    }
    if (/^[a-z]+:/.test(specifier)) throw new Error(`${importer} imports ${specifier}, which browsers do not have`);
    const [, name, rest] = /^((?:@[^/]+\/)?[^/]+)(.*)$/.exec(specifier)!;
    const { dir, manifest } = this.#named(name!, importer);
    return join(dir, chosen(exportOf(manifest, `.${rest}`), specifier, importer));
  }

  /** The package that contains a file. */
  packageOf(file: string): Package {
    for (let dir = dirname(file); ; dir = dirname(dir)) {
      const found = this.#packages.get(dir) ?? this.#read(dir);
      if (found !== undefined) return found;
      if (dir === dirname(dir)) throw new Error(`${file} is in no package`);
    }
  }

  #named(name: string, importer: string): Package {
    for (let dir = dirname(importer); ; dir = dirname(dir)) {
      const place = join(dir, 'node_modules', name);
      if (existsSync(place)) return this.packageOf(join(realpathSync(place), 'package.json'));
      if (dir === dirname(dir)) throw new Error(`${importer} imports ${name}, which is not installed: run npm install`);
    }
  }

  #read(dir: string): Package | undefined {
    const file = join(dir, 'package.json');
    if (!existsSync(file)) return undefined;
    const found = { dir, manifest: JSON.parse(readFileSync(file, 'utf8')) as Manifest };
    this.#packages.set(dir, found);
    return found;
  }
}

function exportOf({ exports, module, main }: Manifest, subpath: string): Target | undefined {
  if (exports === undefined) return subpath === '.' ? (module ?? main ?? 'index.js') : subpath;
  const hasSubpaths = typeof exports === 'object' && exports !== null && Object.keys(exports)[0]?.startsWith('.');
  if (!hasSubpaths) return subpath === '.' ? exports : undefined;
  return (exports as Readonly<Record<string, Target>>)[subpath];
}

function chosen(target: Target | undefined, specifier: string, importer: string): string {
  if (typeof target === 'string') return target;
  for (const [condition, inner] of Object.entries(target ?? {})) {
    if (CONDITIONS.has(condition)) return chosen(inner, specifier, importer);
  }
  throw new Error(`${importer} imports ${specifier}, which its package.json does not offer to browsers`);
}
