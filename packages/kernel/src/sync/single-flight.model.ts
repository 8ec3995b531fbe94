/** SingleFlight under every schedule. The model takes the class, so that a mutant can replace it. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError } from '../errors.ts';
import type { SingleFlight } from './single-flight.ts';

export interface SingleFlightModelInit {
  callers: number;
  /** So many of the callers may abort, each at any moment. */
  leavers: number;
  outlives: boolean;
  closes?: boolean;
}

const OUTLIVES_MS = 1000;

interface RunSeen {
  readonly signal: AbortSignal;
  readonly begun_ms: number;
  /** Callers that have not left. */
  waiting: number;
  hasEnded: boolean;
  /** In that turn, callers may still join it: the microtasks that take its result have not all run. */
  ended_turn: number;
}

/** Callers of one key; a run ends well or badly. */
export function singleFlightModel(Class: typeof SingleFlight, init: SingleFlightModelInit): Build {
  return (world) => {
    const flights = new Class<string>('flights', {
      runs_max: init.callers,
      ...(init.outlives && { outlives_ms: OUTLIVES_MS }),
    });
    const runs: RunSeen[] = [];
    const joined = new Map<AbortSignal, RunSeen>();
    let hasTwoRuns = false;
    let isClosed = false;
    let answered = 0;
    const call = async (signal: AbortSignal): Promise<void> => {
      let run = runs.findLast((each) => !each.hasEnded && !each.signal.aborted);
      const ending = runs.findLast((each) => each.ended_turn === world.turns());
      const outcome = flights.run('key', signal, async (flight) => {
        hasTwoRuns ||= run !== undefined;
        run = { signal: flight.signal, begun_ms: world.now_ms(), waiting: 0, hasEnded: false, ended_turn: -1 };
        runs.push(run);
        const mine = run;
        const result = world.choose('outcome', ['good', 'bad']);
        await world.io('run');
        mine.hasEnded = true;
        mine.ended_turn = world.turns();
        if (result === 'bad') throw new Error('bad');
        return result;
      });
      if (run !== undefined && !signal.aborted) {
        run.waiting += 1;
        joined.set(signal, run);
      }
      const text = await outcome.catch((error: unknown) => {
        if (error === signal.reason) return 'left';
        return isRonError(error) ? error.code : (error as Error).message;
      });
      assert.ok(text !== 'left' || signal.aborted, 'a caller was sent away with the reason of another');
      if (text === 'good' || text === 'bad')
        assert.ok((run ?? ending)?.hasEnded, 'an answer of a run that the caller could not join');
      answered += 1;
    };
    for (let caller = 0; caller < init.callers; caller++) {
      const leaving = new AbortController();
      world.task(`caller ${caller}`, () => call(leaving.signal));
      if (caller >= init.leavers) continue;
      world.task(`leaver ${caller}`, async () => {
        const run = joined.get(leaving.signal);
        if (run !== undefined) run.waiting -= 1;
        leaving.abort(new Error('gone'));
      });
    }
    if (init.closes === true) {
      world.task('closer', async () => {
        await flights.close();
        isClosed = true;
        assert.ok(
          runs.every((run) => run.hasEnded),
          'close resolved while a run is under way',
        );
      });
    }
    return {
      invariant: () => {
        assert.ok(!hasTwoRuns, 'two runs of one key');
        for (const run of runs) {
          if (init.closes === true || run.hasEnded || !run.signal.aborted) continue;
          if (init.outlives) assert.ok(world.now_ms() >= run.begun_ms + OUTLIVES_MS, 'a run was aborted too early');
          else assert.equal(run.waiting, 0, 'a run was aborted under a waiting caller');
        }
      },
      final: () => {
        assert.equal(answered, init.callers, 'a caller still waits');
        assert.ok(init.closes !== true || isClosed);
        for (const run of runs) assert.ok(run.hasEnded, 'a run was left');
        assert.equal(flights.size, 0, 'a run is still counted');
      },
    };
  };
}
