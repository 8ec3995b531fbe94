/** Assertions for tests: a model holds under every schedule, or a broken version of it is caught. */
import { explore } from './explore.ts';
import type { Build, Failure, FailureKind, Options, Result } from './model.ts';
import { messageOf } from './search/search.ts';

/** Throws, with the trace and the seed, unless the model holds under every schedule. Options may not leave any out. */
export async function assertHolds(build: Build, options: Options = {}): Promise<Result> {
  const result = await holds(build, options);
  if (!result.complete) throw incomplete(result, options, `bounded by ${result.bounds.join(', ')}`);
  return result;
}

/** Where a bounded result is reported: the context of a node:test test. */
export interface Reporter {
  diagnostic(message: string): void;
}

/**
 * As `assertHolds`, for a model that has too many schedules: `options` must name at least one bound. The bounds are
 * reported, so that the output of the tests shows which results are not complete.
 */
export async function assertHoldsWithin(reporter: Reporter, build: Build, options: Options): Promise<Result> {
  const result = await holds(build, options);
  if (result.complete) {
    throw new ModelError(`${nameOf(options)}: complete, no option bounds it. Use assertHolds`, result);
  }
  reporter.diagnostic(`${nameOf(options)}: ${result.schedules} schedules, bounded by ${result.bounds.join(', ')}`);
  return result;
}

async function holds(build: Build, options: Options): Promise<Result> {
  const result = await explore(build, options);
  if (result.failure !== undefined) throw new ModelError(describeFailure(result.failure, options), result);
  if (!result.holds) throw incomplete(result, options, 'schedules_max was reached');
  return result;
}

function incomplete(result: Result, options: Options, why: string): ModelError {
  return new ModelError(`${nameOf(options)}: not complete, ${why} (${result.schedules} schedules)`, result);
}

/** Throws unless some schedule fails, and in the expected way: a kind, or a pattern for `kind: message`. */
export async function assertCaught(
  build: Build,
  options: Options = {},
  expected?: RegExp | FailureKind,
): Promise<Result & { readonly failure: Failure }> {
  const result = await explore(build, options);
  const { failure } = result;
  if (failure === undefined) {
    const within = result.bounds.length === 0 ? '' : ` within ${result.bounds.join(', ')}`;
    const extent = result.holds ? `all ${result.schedules}` : result.schedules;
    throw new ModelError(`${nameOf(options)}: survived, no failure in ${extent} schedules${within}`, result);
  }
  const matches =
    expected instanceof RegExp ? expected.test(headline(failure)) : failure.kind === (expected ?? failure.kind);
  if (!matches) {
    throw new ModelError(`expected ${String(expected)}, but got ${describeFailure(failure, options)}`, result);
  }
  return { ...result, failure };
}

/** A model does not satisfy the assertion of a test. */
export class ModelError extends Error {
  override readonly name = 'ModelError';
  readonly result: Result;

  constructor(message: string, result: Result) {
    super(message, { cause: result.failure?.error });
    this.result = result;
  }
}

/** A failure as text: its kind, its steps, and the call that replays it. */
export function describeFailure(failure: Failure, options: Options = {}): string {
  const width = String(failure.trace.length).length;
  const preemptions = failure.preemptions === 1 ? '1 preemption' : `${failure.preemptions} preemptions`;
  return [
    `${nameOf(options)}: ${headline(failure)}`,
    `after ${failure.trace.length} steps with ${preemptions}:`,
    ...failure.trace.map((line, index) => `  ${String(index + 1).padStart(width)}. ${line}`),
    `seed: ${failure.seed}`,
    `replay with: await replay(build, '${failure.seed}')`,
  ].join('\n');
}

function headline({ kind, error }: Failure): string {
  // node:assert separates the compared values by empty lines.
  return `${kind}: ${messageOf(error).trim().replaceAll(/\n\n+/g, '\n')}`;
}

function nameOf(options: Options): string {
  return options.name ?? 'model';
}
