/**
 * [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1] A `withSync` callback is a critical section: it must not be async, await, yield or loop over
 * an async iterable.
 */

const isFunction = (node) =>
  node.type === 'ArrowFunctionExpression' || node.type === 'FunctionExpression' || node.type === 'FunctionDeclaration';

const isGuardCall = (node) =>
  node?.type === 'CallExpression' &&
  node.callee.type === 'MemberExpression' &&
  (node.callee.property?.name === 'withSync' || node.callee.property?.value === 'withSync');

/** A type assertion around a callback hides it from the type checker, but not from this rule. */
const ASSERTIONS = new Set(['TSAsExpression', 'TSSatisfiesExpression', 'TSTypeAssertion', 'TSNonNullExpression']);
const bare = (node) => (ASSERTIONS.has(node?.type) ? bare(node.expression) : node);
const asserted = (node) => (ASSERTIONS.has(node.parent?.type) ? asserted(node.parent) : node);

const isGuardCallback = (node) => {
  if (!isFunction(node)) return false;
  const argument = asserted(node);
  return isGuardCall(argument.parent) && argument.parent.arguments.includes(argument);
};

export const noAwaitInGuard = {
  meta: {
    type: 'problem',
    messages: {
      guard: 'no await inside withSync: copy the needed values out of the guard, then await',
    },
  },
  create(context) {
    const report = (node) => context.report({ node, messageId: 'guard' });
    const reportWhenGuarded = (node) => {
      for (let outer = node.parent; outer; outer = outer.parent) {
        if (!isFunction(outer)) continue;
        if (isGuardCallback(outer)) report(node);
        return;
      }
    };
    return {
      CallExpression(node) {
        if (!isGuardCall(node)) return;
        const callback = bare(node.arguments[0]);
        if (callback && isFunction(callback) && (callback.async || callback.generator)) report(callback);
      },
      AwaitExpression: reportWhenGuarded,
      YieldExpression: reportWhenGuarded,
      ForOfStatement(node) {
        if (node.await) reportWhenGuarded(node);
      },
    };
  },
};
