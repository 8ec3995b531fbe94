/** Each gate closes the lanes that docs/operations.md names. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gatesOf, type GatesInit } from './readiness.ts';

const WHY = 'a problem';
const NONE = { problem: undefined };

interface Case {
  readonly closes: readonly string[];
  readonly lanes: readonly string[];
  readonly init: Partial<GatesInit>;
}

const queue = (overloaded: boolean): { readonly overloaded: boolean } => ({ overloaded });
const queues = (slow?: string): GatesInit['queues'] => ({
  reads: queue(slow === 'reads'),
  puts: queue(slow === 'puts'),
  webhooks: queue(slow === 'webhooks'),
});
const upstreams = (name?: string): GatesInit['upstreams'] => {
  const sample = (each: string) => (): string | undefined => (each === name ? WHY : undefined);
  return {
    problems: {
      brownout: sample('brownout'),
      mailbox: sample('mailbox'),
      storage: sample('storage'),
      passport: sample('passport'),
    },
  };
};
const bridge = (name: string): GatesInit['bridge'] => {
  const sample = (each: string) => (): string | undefined => (each === name ? WHY : undefined);
  return { problems: { slots: sample('slots'), passport: sample('passport') } };
};
const SOUND: GatesInit = {
  receipts: NONE,
  providers: NONE,
  spool: NONE,
  missing: undefined,
  bridge: { problems: { slots: () => undefined, passport: () => undefined } },
  queues: queues(),
  upstreams: upstreams(),
};
const missing = (wanted: string): GatesInit['missing'] => ({ problem: (name) => (name === wanted ? WHY : undefined) });

const CASES: Readonly<Record<string, Case>> = {
  'receipts that are not signed': { closes: ['receipts'], lanes: ['bridge'], init: { receipts: { problem: WHY } } },
  'a receipt log that is missing': { closes: ['receipts'], lanes: ['bridge'], init: { missing: missing('receipts') } },
  'a provider that is closed': { closes: ['providers'], lanes: [], init: { providers: { problem: WHY } } },
  'a brownout': { closes: ['brownout'], lanes: ['bridge'], init: { upstreams: upstreams('brownout') } },
  'a mailbox that is away': { closes: ['mailbox'], lanes: ['bridge'], init: { upstreams: upstreams('mailbox') } },
  'a storage that is away': { closes: ['storage'], lanes: ['put'], init: { upstreams: upstreams('storage') } },
  'a passport that is away': { closes: ['passport'], lanes: ['put'], init: { upstreams: upstreams('passport') } },
  'a spool without room': { closes: ['spool'], lanes: ['bridge'], init: { spool: { problem: WHY } } },
  'a spool that is missing': { closes: ['spool'], lanes: ['bridge'], init: { missing: missing('spool') } },
  'a slow queue of webhooks': { closes: ['queues'], lanes: ['bridge'], init: { queues: queues('webhooks') } },
  'a slow queue of reads': { closes: ['queues'], lanes: ['bridge'], init: { queues: queues('reads') } },
  'slots of /put that are taken': { closes: ['put_queue'], lanes: ['put'], init: { bridge: bridge('slots') } },
  'a capability for passport that is refused': {
    closes: ['passport'],
    lanes: ['put'],
    init: { bridge: bridge('passport') },
  },
  'a slow queue of puts': {
    closes: ['queues', 'put_queue'],
    lanes: ['bridge', 'put'],
    init: { queues: queues('puts') },
  },
};

for (const [what, { closes, lanes, init }] of Object.entries(CASES)) {
  test(`${what} closes ${closes.join(' and ')}, for the lanes ${lanes.join(' and ') || 'none'}`, () => {
    const closed = Object.entries(gatesOf({ ...SOUND, ...init })).filter(([, { sample }]) => sample!() !== undefined);
    assert.deepEqual(
      closed.map(([name]) => name),
      closes,
    );
    assert.deepEqual([...new Set(closed.flatMap(([, gate]) => gate.lanes ?? []))], lanes);
    assert.ok(closed.every(([, { kind }]) => kind === 'soft'));
  });
}

test('without a problem every gate is open', () => {
  for (const [name, { sample }] of Object.entries(gatesOf(SOUND))) assert.equal(sample!(), undefined, name);
});
