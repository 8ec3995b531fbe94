/**
 * [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3] Every queue states a finite capacity where it is created, and no unbounded buffer of Node is
 * imported. The kernel asserts the value at run time; this rule refuses `Infinity` and forgotten arguments in the source.
 */

const CHANNELS = new Set(['Mpsc', 'WorkQueue', 'Broadcast']);
const UNBOUNDED_IMPORTS = new Map([
  ['node:events', new Set(['on'])],
  ['events', new Set(['on'])],
]);

const isInfinite = (node) =>
  (node.type === 'Identifier' && node.name === 'Infinity') ||
  (node.type === 'MemberExpression' &&
    node.object.name === 'Number' &&
    ['POSITIVE_INFINITY', 'MAX_SAFE_INTEGER', 'MAX_VALUE'].includes(node.property.name));

function statedCapacity(argument) {
  if (argument?.type !== 'ObjectExpression') return argument;
  if (argument.properties.some((property) => property.type === 'SpreadElement')) return argument;
  return argument.properties.find((property) => property.key?.name === 'capacity')?.value;
}

export const noUnboundedQueue = {
  meta: {
    type: 'problem',
    messages: {
      capacity: '{{name}} needs a finite capacity as its second argument: backpressure, not buffering',
      source: '{{name}} of {{source}} buffers without a bound: use a kernel channel',
    },
  },
  create(context) {
    return {
      NewExpression(node) {
        const name = node.callee.name;
        if (!CHANNELS.has(name)) return;
        const capacity = statedCapacity(node.arguments[1]);
        if (capacity === undefined || isInfinite(capacity)) {
          context.report({ node, messageId: 'capacity', data: { name } });
        }
      },
      ImportDeclaration(node) {
        const source = node.source.value;
        const names = UNBOUNDED_IMPORTS.get(source);
        if (names === undefined) return;
        for (const specifier of node.specifiers) {
          const name = specifier.imported?.name;
          if (names.has(name)) context.report({ node: specifier, messageId: 'source', data: { name, source } });
        }
      },
    };
  },
};
