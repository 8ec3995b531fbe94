import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { checkTable, drainRounds, startOrder } from './call-graph.ts';

/** An imaginary node with nine services. */
const NINE = rowsOf({
  storage: ['passport', 'kms', '~index'],
  index: ['storage', 'passport', 'kms'],
  edge: ['storage', 'kms', 'passport'],
  interop: ['storage', 'mailbox', 'kms', 'passport'],
  kms: ['~passport'],
  mailbox: ['kms', 'passport'],
  passport: ['kms'],
  console: ['index', 'edge', 'interop', 'storage', 'mailbox', 'kms', 'passport'],
  witness: [],
});

interface Row {
  readonly name: string;
  readonly calls: { to: string; scopes: []; isBackground: boolean; purpose?: string }[];
}

/** `~` marks a background call. */
function rowsOf(calls: Readonly<Record<string, readonly string[]>>): Row[] {
  return Object.entries(calls).map(([name, callees]) => ({
    name,
    calls: callees.map((to) => ({ to: to.replace('~', ''), scopes: [], isBackground: to.startsWith('~') })),
  }));
}

test('nine services: callers drain before their callees, and each service as late as possible', () => {
  assert.deepEqual(drainRounds(NINE), [
    ['console'],
    ['index', 'edge', 'interop'],
    ['storage', 'mailbox'],
    ['passport'],
    ['kms', 'witness'],
  ]);
  const order = startOrder(NINE);
  assert.deepEqual(order.toSorted(), NINE.map(({ name }) => name).toSorted());
  for (const { name, calls } of NINE) {
    for (const { to, isBackground } of calls)
      if (!isBackground) assert.ok(order.indexOf(to) < order.indexOf(name), `${to} is started before ${name}`);
  }
});

test('the rounds of the node: edge, interop, console; index, storage, mailbox; passport; kms', () => {
  const table = rowsOf({
    storage: ['kms', 'passport', '~index'],
    index: ['kms', 'passport'],
    edge: ['kms', 'passport', 'storage'],
    interop: ['kms', 'passport', 'storage', 'mailbox'],
    kms: ['~passport'],
    mailbox: ['kms', 'passport'],
    passport: ['kms'],
    console: ['kms', 'passport', 'storage', 'index', 'mailbox', '~edge', '~interop'],
  });
  assert.deepEqual(drainRounds(table), [
    ['edge', 'interop', 'console'],
    ['storage', 'index', 'mailbox'],
    ['passport'],
    ['kms'],
  ]);
});

test('a stopped service does not affect the order', () => {
  const some = NINE.filter(({ name }) => name === 'edge' || name === 'kms' || name === 'interop');
  assert.deepEqual(drainRounds(some), [['edge', 'interop'], ['kms']]);
});

test('a cycle is refused and named, unless one of its calls is a background call', () => {
  const rows = { edge: ['storage'], storage: ['index'], index: ['kms', 'storage'], kms: [] };
  assert.throws(() => checkTable(rowsOf(rows)), /storage calls index calls storage: a cycle has no drain order/);
  checkTable(rowsOf({ ...rows, storage: ['~index'] }));
});

test('without a cycle, callers are in earlier rounds than callees; a cycle is found', () => {
  const edges = fc.array(fc.tuple(fc.nat(8), fc.nat(8)), { maxLength: 24 });
  fc.assert(
    fc.property(edges, fc.boolean(), (pairs, isAcyclic) => {
      const used = pairs.filter(([from, to]) => (isAcyclic ? from < to : from !== to));
      const table = Array.from({ length: 9 }, (_, at) => ({
        name: `s${at}`,
        calls: used.filter(([from]) => from === at).map(([, to]) => ({ to: `s${to}` })),
      }));
      let rounds: string[][];
      try {
        rounds = drainRounds(table);
      } catch (error) {
        assert.equal(isAcyclic, false);
        const names = /table: (.*): a cycle/.exec(String(error))![1]!.split(' calls ');
        assert.equal(names[0], names.at(-1));
        for (const [at, name] of names.slice(0, -1).entries())
          assert.ok(table.find((row) => row.name === name)!.calls.some(({ to }) => to === names[at + 1]));
        return;
      }
      const roundOf = (name: string): number => rounds.findIndex((round) => round.includes(name));
      assert.equal(rounds.flat().length, 9);
      for (const { name, calls } of table) for (const { to } of calls) assert.ok(roundOf(name) < roundOf(to));
    }),
  );
});

test('an invalid table is refused: duplicate names, duplicate files, scopes of another service', () => {
  const call = (to: string, more = {}): Row['calls'][number] => ({ to, scopes: [], isBackground: false, ...more });
  const kms = { name: 'kms', calls: [] };
  assert.throws(() => checkTable([kms, kms]), /kms occurs twice/);
  assert.throws(() => checkTable([{ name: 'kms', calls: [call('kms')] }]), /kms calls itself/);
  const twice = (purpose?: object): Row[] => [kms, { name: 'edge', calls: [call('kms'), call('kms', purpose)] }];
  assert.throws(() => checkTable(twice()), /edge calls kms twice: give each call a purpose/);
  checkTable(twice({ purpose: 'sign' }));
  const foreign = [{ name: 'edge', calls: [{ to: 'kms', scopes: ['storage:get'] as const }] }, kms];
  assert.throws(() => checkTable(foreign), /edge calls kms with storage:get, a scope of another service/);
});
