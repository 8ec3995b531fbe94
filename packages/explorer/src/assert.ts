/** Assertions for tests: a model holds under every schedule, or a broken version of it is caught. */
import { explore } from './explore.ts';
import type { Build, Failure, FailureKind, Options, Result } from './model.ts';
import { messageOf } from './search.ts';

/** Throws, with the trace and the seed, unless the model holds under every schedule. */
export async function assertHolds(build: Build, options: Options = {}): Promise<Result> {
  const result = await explore(build, options);
  if (result.failure !== undefined) throw new ModelError(describeFailure(result.failure, options), result);
  if (!result.complete) {
    const why = options.preemptions === undefined ? 'schedules_max was reached' : 'preemptions bounds it';
    throw new ModelError(`${nameOf(options)}: not complete, ${why} (${result.schedules} schedules)`, result);
  }
  return result;
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
    const extent = result.complete ? `all ${result.schedules}` : result.schedules;
    throw new ModelError(`${nameOf(options)}: survived, no failure in ${extent} schedules`, result);
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
