/**
 * Starts a TypeScript entry point: `node tools/run.js ENTRY.ts [arguments]`.
 *
 * Written in JavaScript that Node 18 can parse, so that an older Node prints a helpful error instead of
 * `ERR_UNKNOWN_FILE_EXTENSION`.
 */
import { realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const NODE_MAJOR_MIN = 26;
const EXIT_OLD_NODE = 1;

const [entry, ...rest] = process.argv.slice(2);
if (Number.parseInt(process.versions.node, 10) < NODE_MAJOR_MIN) {
  process.stderr.write(
    `ron needs Node ${NODE_MAJOR_MIN} or newer; this is ${process.version}.\n` +
      '`npm install` in the project folder installs it as the npm package "node". If npm asks, allow the install script\n' +
      'of "node" (listed under allowScripts in package.json). Then use the npm scripts, for example `npm start`.\n',
  );
  process.exit(EXIT_OLD_NODE);
}
if (entry === undefined) {
  process.stderr.write('usage: node tools/run.js ENTRY.ts [arguments]\n');
  process.exit(64);
}
// Entries compare `process.argv[1]` with `import.meta.filename`, because `import.meta.main` is false here.
const path = realpathSync(resolve(entry));
process.argv = [process.argv[0], path, ...rest];
await import(pathToFileURL(path).href);
