/** Clock, timers and randomness come from the kernel's `sched`, so that the explorer and tests can replace them. */

const GLOBAL_CALLS = new Set(['setTimeout', 'setInterval', 'setImmediate']);
const MEMBER_CALLS = new Set([
  'Date.now',
  'Math.random',
  'performance.now',
  'process.hrtime',
  'process.hrtime.bigint',
  'process.nextTick',
  'AbortSignal.timeout',
  'crypto.randomBytes',
  'crypto.randomUUID',
  'crypto.getRandomValues',
]);
const RANDOM_IMPORTS = new Set(['randomBytes', 'randomUUID', 'randomInt', 'randomFill', 'randomFillSync']);

function dotted(node) {
  if (node.type === 'Identifier') return node.name;
  if (node.type !== 'MemberExpression' || node.computed) return undefined;
  const object = dotted(node.object);
  if (object === undefined) return undefined;
  return object === 'globalThis' ? node.property.name : `${object}.${node.property.name}`;
}

export const noRawTimers = {
  meta: {
    type: 'problem',
    messages: { seam: '{{name}}: use `sched` of @ron/kernel for time, timers and randomness' },
  },
  create(context) {
    const report = (node, name) => context.report({ node, messageId: 'seam', data: { name } });
    return {
      CallExpression(node) {
        const name = dotted(node.callee);
        if (name !== undefined && (GLOBAL_CALLS.has(name) || MEMBER_CALLS.has(name))) report(node, name);
      },
      NewExpression(node) {
        if (dotted(node.callee) === 'Date' && node.arguments.length === 0) report(node, 'new Date()');
      },
      ImportDeclaration(node) {
        const source = node.source.value;
        if (/^(node:)?timers(\/promises)?$/.test(source)) report(node, source);
        if (!/^(node:)?crypto$/.test(source)) return;
        for (const specifier of node.specifiers) {
          const name = specifier.imported?.name;
          if (RANDOM_IMPORTS.has(name)) report(specifier, `${source} ${name}`);
        }
      },
    };
  },
};
