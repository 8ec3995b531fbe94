/** No lane and no key starves another: priority, minimum share, reserved room and fairness by key. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Deadline } from '../time/deadline.ts';
import { isRonError } from '../errors.ts';
import { installSched, realSched } from '../sched.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { WorkQueue, type LaneDeclaration } from './work-queue.ts';

const never = new AbortController().signal;

/** A queue on a virtual clock that is filled by hand and served job by job. */
class Bench {
  readonly time = new VirtualSched();
  readonly queue: WorkQueue;
  readonly ran: string[] = [];
  readonly answers = new Map<string, string>();

  constructor(capacity: number, lanes: readonly LaneDeclaration[]) {
    this.queue = new WorkQueue('work', { capacity, lanes });
  }

  submit(name: string, lane: string, key?: string, budget_ms = 1000): void {
    const work = async (): Promise<void> => void this.ran.push(name);
    this.queue.submit(lane, Deadline.after('request', budget_ms), work, key).then(
      () => this.#answered(name, 'done'),
      (error: unknown) => this.#answered(name, isRonError(error) ? error.code : String(error)),
    );
  }

  async serve(count: number): Promise<string[]> {
    const from = this.ran.length;
    for (let at = 0; at < count; at++) await (await this.queue.take(never))!.run();
    await this.time.settle();
    return this.ran.slice(from);
  }

  async answer(name: string): Promise<string | undefined> {
    await this.time.settle();
    return this.answers.get(name);
  }

  #answered(name: string, answer: string): void {
    assert.ok(!this.answers.has(name), `${name} is answered once`);
    this.answers.set(name, answer);
  }
}

function bench(capacity: number, lanes: readonly LaneDeclaration[], use: (b: Bench) => Promise<void>) {
  return (): Promise<void> => {
    const made = new Bench(capacity, lanes);
    return made.time.during(() => use(made));
  };
}

const times = (count: number, act: (at: number) => void): void => {
  for (let at = 0; at < count; at++) act(at);
};

test(
  'a lane that is flooded does not take the reserved room of another',
  bench(8, ['webhooks', { name: 'reads', reserve_share: 0.25 }], async (b) => {
    times(20, (at) => b.submit(`webhook ${at}`, 'webhooks'));
    assert.equal(b.queue.depthOf('webhooks'), 6);
    times(3, (at) => b.submit(`read ${at}`, 'reads'));
    assert.equal(b.queue.depthOf('reads'), 2);
    assert.equal(await b.answer('read 2'), 'busy');
    assert.deepEqual([b.queue.busyOf('webhooks'), b.queue.busyOf('reads')], [14, 1]);
  }),
);

test(
  'a lane uses its reserve first and shared room after that, and room is free again however a job leaves',
  bench(4, [{ name: 'reads', reserve_share: 0.5 }, 'puts'], async (b) => {
    const fill = (round: string): void => {
      times(9, (at) => b.submit(`read ${at} ${round}`, 'reads'));
      assert.deepEqual([b.queue.depthOf('reads'), b.queue.depth], [4, 4], round);
      b.submit(`put ${round}`, 'puts');
      assert.equal(b.queue.depthOf('puts'), 0, 'no shared room is left');
    };
    fill('first');
    await b.serve(4);
    fill('after jobs were served');
    b.queue.abortQueued(new Error('aborted'));
    fill('after jobs were aborted');
    await b.time.advance(1000);
    assert.equal(b.queue.depth, 0, 'all have timed out');
    times(9, (at) => b.submit(`put again ${at}`, 'puts'));
    assert.equal(b.queue.depthOf('puts'), 2, 'the reserve of the other lane stays free');
    times(9, (at) => b.submit(`last read ${at}`, 'reads'));
    assert.equal(b.queue.depth, 4);
  }),
);

test(
  'the lane of higher priority is served first, and lanes of equal priority take turns',
  bench(64, [{ name: 'low' }, { name: 'high', priority: 1 }, { name: 'also high', priority: 1 }], async (b) => {
    times(3, (at) => {
      b.submit(`low ${at}`, 'low');
      b.submit(`high ${at}`, 'high');
      b.submit(`also ${at}`, 'also high');
    });
    assert.deepEqual(await b.serve(7), ['high 0', 'also 0', 'high 1', 'also 1', 'high 2', 'also 2', 'low 0']);
  }),
);

test(
  'a lane of low priority gets one in sixteen jobs while a higher one never runs empty',
  bench(512, ['low', 'lower', { name: 'high', priority: 9 }], async (b) => {
    times(160, (at) => b.submit(`high ${at}`, 'high'));
    times(40, (at) => {
      b.submit(`low ${at}`, 'low');
      b.submit(`lower ${at}`, 'lower');
    });
    const served = await b.serve(160);
    const count = (lane: string): number => served.filter((name) => name.startsWith(`${lane} `)).length;
    assert.ok(count('low') >= 9 && count('lower') >= 9, `low ${count('low')}, lower ${count('lower')} of 160`);
    assert.ok(count('high') >= 136, `high ${count('high')} of 160`);
  }),
);

test(
  'keys of a lane take turns, and the jobs of a key stay in order',
  bench(64, [{ name: 'get', key: 'tenant' }], async (b) => {
    times(20, (at) => b.submit(`flood ${at}`, 'get', 'flood'));
    times(2, (at) => b.submit(`zoo ${at}`, 'get', 'zoo'));
    b.submit('acme', 'get', 'acme');
    const served = await b.serve(6);
    assert.deepEqual(served, ['flood 0', 'zoo 0', 'acme', 'flood 1', 'zoo 1', 'flood 2']);
  }),
);

test(
  'in standing overload the newest job of each key is served, and keys still take turns',
  bench(64, [{ name: 'get', key: 'tenant' }], async (b) => {
    times(3, (at) => b.submit(`flood ${at}`, 'get', 'flood'));
    times(2, (at) => b.submit(`zoo ${at}`, 'get', 'zoo'));
    await b.time.advance(600);
    assert.deepEqual(await b.serve(4), ['flood 2', 'zoo 1', 'flood 1', 'zoo 0']);
    assert.ok(b.queue.overloaded);
  }),
);

test(
  'a lane without a key serves in the order of arrival, even if jobs name keys',
  bench(64, ['get'], async (b) => {
    times(3, (at) => b.submit(`a ${at}`, 'get', 'a'));
    b.submit('b', 'get', 'b');
    assert.deepEqual(await b.serve(4), ['a 0', 'a 1', 'a 2', 'b']);
  }),
);

test(
  'in a full lane a job of a short key displaces the newest of the longest, which is answered with busy once',
  bench(8, [{ name: 'get', key: 'tenant' }], async (b) => {
    times(9, (at) => b.submit(`flood ${at}`, 'get', 'flood'));
    assert.equal(b.queue.depth, 8, 'a key that is alone uses all the room');
    assert.equal(await b.answer('flood 8'), 'busy');
    times(5, (at) => b.submit(`zoo ${at}`, 'get', 'zoo'));
    assert.equal(b.queue.depth, 8);
    assert.deepEqual(
      await Promise.all(['flood 7', 'flood 4', 'flood 3', 'zoo 3', 'zoo 4'].map((name) => b.answer(name))),
      ['busy', 'busy', undefined, undefined, 'busy'],
    );
    assert.deepEqual([b.queue.shed_total, b.queue.busy_total, b.queue.accepted_total], [4, 6, 12]);
    assert.deepEqual(await b.serve(3), ['flood 0', 'zoo 0', 'flood 1']);
  }),
);

test(
  'a lane that ran empty without being served is not owed the turns that it was passed over for',
  bench(100, [{ name: 'high', priority: 1 }, 'low'], async (b) => {
    const gone = new AbortController();
    const deadline = Deadline.after('request', 1000, { signal: gone.signal });
    const left = assert.rejects(
      b.queue.submit('low', deadline, async () => undefined),
      /gone/,
    );
    times(40, (at) => b.submit(`high ${at}`, 'high'));
    await b.serve(15);
    gone.abort(new Error('gone'));
    await left;
    b.submit('low again', 'low');
    const served = await b.serve(16);
    assert.equal(served.indexOf('low again'), 15, served.join());
  }),
);

test(
  'lanes that were passed over too often take turns, regardless of priority',
  bench(
    200,
    Array.from({ length: 20 }, (_, at) => ({ name: `lane${at}`, priority: at })),
    async (b) => {
      times(20, (lane) => times(10, (at) => b.submit(`lane${lane} ${at}`, `lane${lane}`)));
      const served = new Set((await b.serve(60)).map((name) => name.split(' ')[0]));
      assert.equal(served.size, 20, [...served].join());
    },
  ),
);

test('a job is answered even if the deadline that it shares with others ends while it displaces one', async (t) => {
  for (const passing_ms of [0.2, 0.3, 0.4, 0.5, 0.9]) {
    let now_ms = 0;
    let step_ms = 0;
    const previous = installSched({ ...realSched, now_ms: () => (now_ms += step_ms) });
    t.after(() => installSched(previous));
    const queue = new WorkQueue('work', { capacity: 3, lanes: [{ name: 'get', key: 'address' }] });
    const parent = Deadline.after('session', 100);
    const submit = (key: string): Promise<unknown> =>
      queue.submit('get', parent.child('request', 1000), async () => key, key).catch((error: unknown) => error);
    const answers = ['a', 'a', 'a'].map(submit);
    now_ms = 99.1;
    step_ms = passing_ms;
    answers.push(submit('b'));
    step_ms = 0;
    now_ms = 200;
    assert.equal(await queue.take(AbortSignal.abort()).catch(() => undefined), undefined);
    assert.equal(parent.expired, true);
    for (const answer of await Promise.all(answers)) {
      assert.ok(isRonError(answer, 'timeout') || isRonError(answer, 'busy'), String(answer));
    }
    assert.equal(queue.depth, 0);
    queue.close();
    installSched(previous);
  }
});

test(
  'a key cannot displace the jobs of another lane',
  bench(4, ['bulk', { name: 'get', key: 'tenant' }], async (b) => {
    times(4, (at) => b.submit(`bulk ${at}`, 'bulk'));
    b.submit('zoo', 'get', 'zoo');
    assert.equal(await b.answer('zoo'), 'busy');
    assert.equal(b.queue.depthOf('bulk'), 4);
  }),
);

test(
  'a job to displace whose deadline is over is answered with timeout, and makes room all the same',
  bench(2, [{ name: 'get', key: 'tenant' }], async (b) => {
    times(2, (at) => b.submit(`flood ${at}`, 'get', 'flood', 10));
    // Time passes without a timer, as in a blocked event loop.
    const late = new VirtualSched(10);
    await late.during(async () => b.submit('zoo', 'get', 'zoo'));
    assert.equal(await b.answer('flood 1'), 'timeout');
    assert.equal(await b.answer('zoo'), undefined);
    assert.equal(b.queue.shed_total, 0);
  }),
);

test('lanes that contradict themselves are refused', () => {
  const refused = (lanes: readonly LaneDeclaration[], why: RegExp): void =>
    assert.throws(() => new WorkQueue('work', { capacity: 4, lanes }), why);
  refused(
    [
      { name: 'a', reserve_share: 0.6 },
      { name: 'b', reserve_share: 0.6 },
    ],
    /at most the capacity/,
  );
  refused([{ name: 'a', reserve_share: 1 }, 'b'], /every lane has room/);
  refused([{ name: 'a', reserve_share: -1 }], /a share/);
  refused([{ name: 'a', priority: 0.5 }], /whole number/);
  refused([{ name: 'a', keys_max: 4 }], /names its key/);
});

test('property: with lanes, reserves and keys every job is answered once, and room is as declared', async () => {
  const LANES = [
    { name: 'a', reserve_share: 0.25, key: 'tenant', keys_max: 2 },
    { name: 'b', priority: 1 },
    { name: 'c', priority: 1, key: 'tenant' },
  ] as const;
  const step = fc.oneof(
    fc.record({
      kind: fc.constant('submit'),
      lane: fc.nat(2),
      key: fc.nat(3),
      budget_ms: fc.integer({ min: 1, max: 9 }),
    }),
    fc.record({ kind: fc.constant('serve'), lane: fc.nat(2), key: fc.nat(3), budget_ms: fc.constant(0) }),
    fc.record({ kind: fc.constant('wait'), lane: fc.nat(2), key: fc.nat(3), budget_ms: fc.nat(4) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const b = new Bench(8, LANES);
      await b.time.during(async () => {
        let submitted = 0;
        for (const { kind, lane, key, budget_ms } of steps) {
          const { name } = LANES[lane]!;
          if (kind === 'wait') await b.time.advance(budget_ms);
          else if (kind === 'serve') {
            if (b.queue.depth > 0) await b.serve(1);
          } else {
            const hadRoom = name === 'a' && b.queue.depthOf('a') < 2;
            b.submit(`${submitted++}`, name, `key ${key}`, budget_ms);
            if (hadRoom) assert.ok(b.queue.depthOf('a') >= 1, 'reserved room is never refused');
          }
          assert.ok(b.queue.depth <= 8 && b.queue.depthOf('b') <= 6 && b.queue.depthOf('c') <= 6);
        }
        await b.time.advance(10);
        assert.equal(b.answers.size, submitted);
        const { accepted_total, busy_total, shed_total, timeout_total } = b.queue;
        const done = [...b.answers.values()].filter((answer) => answer === 'done').length;
        assert.equal(accepted_total, submitted - (busy_total - shed_total));
        assert.equal(accepted_total, done + shed_total + timeout_total);
      });
    }),
  );
});
