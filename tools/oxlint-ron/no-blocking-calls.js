/**
 * [storage I-7] [kms I-7] [index I-7] [edge I-7] [interop I-7] Refuses calls that block the event loop: synchronous file and process calls, SQLite, native
 * libraries, and waits on shared memory. Slow work runs in a `BlockingPool`, file calls in the thread pool of Node.
 * [storage I-11] [kms I-11] [edge I-11] [interop I-11] Refuses finalizers: a resource is closed by its owner, with an asynchronous `close`.
 *
 * A file that must make such a call disables the rule there and states the reason.
 */

/** In these modules every function whose name ends with `Sync` does I/O or runs for long. */
const BLOCKING_MODULES = new Set(['fs', 'child_process', 'zlib']);
const SLOW_CRYPTO = new Set(['argon2Sync', 'checkPrimeSync', 'generatePrimeSync', 'pbkdf2Sync', 'scryptSync']);
/** Every call of these blocks. */
const REFUSED_MODULES = new Set(['sqlite', 'koffi']);

const bareName = (source) => source.replace(/^node:/, '');

function isBlocking(module, name) {
  if (module === 'crypto') return SLOW_CRYPTO.has(name);
  return BLOCKING_MODULES.has(module) && name.endsWith('Sync');
}

export const noBlockingCalls = {
  meta: {
    type: 'problem',
    messages: {
      blocks: '{{name}} blocks the event loop: use the asynchronous call, or a BlockingPool',
      finalizer: 'a finalizer runs at any time or never: give the resource an asynchronous close and call it',
    },
  },
  create(context) {
    const report = (node, name) => context.report({ node, messageId: 'blocks', data: { name } });
    /** Local names of whole modules: `import fs from 'node:fs'`. */
    const modules = new Map();
    return {
      ImportDeclaration(node) {
        if (node.importKind === 'type') return;
        const module = bareName(node.source.value);
        if (REFUSED_MODULES.has(module)) report(node, module);
        for (const specifier of node.specifiers) {
          const name = specifier.imported?.name;
          if (name === undefined) modules.set(specifier.local.name, module);
          else if (isBlocking(module, name)) report(specifier, name);
        }
      },
      MemberExpression(node) {
        if (node.computed || node.object.type !== 'Identifier') return;
        const name = node.property.name;
        const module = modules.get(node.object.name);
        if (module !== undefined && isBlocking(module, name)) report(node, `${node.object.name}.${name}`);
        if (node.object.name === 'Atomics' && name === 'wait') report(node, 'Atomics.wait');
      },
      CallExpression(node) {
        const [first] = node.arguments;
        if (node.callee.type === 'CallExpression' && REFUSED_MODULES.has(first?.value)) report(node, first.value);
      },
      NewExpression(node) {
        if (node.callee.name === 'FinalizationRegistry') context.report({ node, messageId: 'finalizer' });
      },
    };
  },
};
