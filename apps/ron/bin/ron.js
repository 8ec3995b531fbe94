#!/usr/bin/env node
/**
 * The command `ron`. Written in JavaScript that Node 18 can parse, so that an older Node prints a helpful error.
 */
const NODE_MAJOR_MIN = 26;

if (Number.parseInt(process.versions.node, 10) < NODE_MAJOR_MIN) {
  process.stderr.write(
    `ron needs Node ${NODE_MAJOR_MIN} or newer; this is ${process.version}.\n` +
      '`npm install` in the project folder installs it as the npm package "node". Then run `npx ron ...` there.\n',
  );
  process.exit(69);
}
await import('../src/main.ts');
