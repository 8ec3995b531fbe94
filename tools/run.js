/**
 * Starts a TypeScript entry point: `node tools/run.js ENTRY.ts [arguments]`.
 *
 * It is JavaScript that any Node since 18 can read, so that somebody whose install did not bring Node 26 gets a sentence
 * that helps instead of `ERR_UNKNOWN_FILE_EXTENSION`.
 */
import { realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const NODE_MAJOR_MIN = 26;
const EXIT_OLD_NODE = 1;

const [entry, ...rest] = process.argv.slice(2);
if (Number.parseInt(process.versions.node, 10) < NODE_MAJOR_MIN) {
  process.stderr.write(
    `ron needs Node ${NODE_MAJOR_MIN}, this is ${process.version}.\n` +
      'The project brings it as the npm package "node". Run `npm install` in the project folder, allow the install\n' +
      'script of "node" if npm asks (it is listed under allowScripts in package.json), and start through an npm script.\n',
  );
  process.exit(EXIT_OLD_NODE);
}
if (entry === undefined) {
  process.stderr.write('usage: node tools/run.js ENTRY.ts [arguments]\n');
  process.exit(64);
}
// The entry sees itself as the program: `process.argv[1] === import.meta.filename`, where `import.meta.main` is false.
const path = realpathSync(resolve(entry));
process.argv = [process.argv[0], path, ...rest];
await import(pathToFileURL(path).href);
