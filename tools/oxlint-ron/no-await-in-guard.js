/** A `withSync` callback is a critical section: it must not be async, await, yield or loop over an async iterable. */

const isFunction = (node) =>
  node.type === 'ArrowFunctionExpression' || node.type === 'FunctionExpression' || node.type === 'FunctionDeclaration';

const isGuardCall = (node) =>
  node?.type === 'CallExpression' &&
  (node.callee.type === 'MemberExpression' || node.callee.type === 'PrivateInExpression') &&
  (node.callee.property?.name === 'withSync' || node.callee.property?.value === 'withSync');

const isGuardCallback = (node) => isFunction(node) && isGuardCall(node.parent) && node.parent.arguments.includes(node);

export const noAwaitInGuard = {
  meta: {
    type: 'problem',
    messages: {
      guard: 'no await inside withSync: copy what you need out of the guard, leave it, then await',
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
        const callback = node.arguments[0];
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
