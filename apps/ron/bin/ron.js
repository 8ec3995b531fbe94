#!/usr/bin/env node
/**
 * The command `ron`. It is JavaScript that any Node since 18 can read, so that an old one gets a sentence that helps.
 */
const NODE_MAJOR_MIN = 26;

if (Number.parseInt(process.versions.node, 10) < NODE_MAJOR_MIN) {
  process.stderr.write(
    `ron needs Node ${NODE_MAJOR_MIN}, this is ${process.version}.\n` +
      'The project brings it as the npm package "node": run `npm install` in the project folder, then `npx ron ...` there.\n',
  );
  process.exit(69);
}
await import('../src/main.ts');
