/**
 * The start and drain order of services, computed from their calls.
 *
 * Contract: `drainRounds` puts a service into an earlier round than its callees, and otherwise as late as possible; services
 * of one round do not call each other. The start uses the rounds in reverse. Calls to services that are not in the list and
 * background calls are ignored. A cycle is refused, and the error names it.
 *
 *     drainRounds([
 *       { name: 'edge', calls: [{ to: 'storage' }] },
 *       { name: 'storage', calls: [{ to: 'kms' }] },
 *       { name: 'kms', calls: [] },
 *     ]); // [['edge'], ['storage'], ['kms']]
 */
import { isService, scopeService, type Scope } from '@ron/proto';
import { CliError } from '../../exits.ts';

interface Caller<Name extends string> {
  readonly name: Name;
  readonly calls: readonly { readonly to: Name; readonly isBackground?: boolean }[];
}

export function drainRounds<Name extends string>(services: readonly Caller<Name>[]): Name[][] {
  const byName = new Map(services.map((each) => [each.name, each]));
  const heights = new Map<Name, number>();
  /** The length of the longest call chain that begins at a service. */
  const heightOf = (name: Name, above: readonly Name[]): number => {
    const known = heights.get(name);
    if (known !== undefined) return known;
    if (above.includes(name)) throw cycle([...above.slice(above.indexOf(name)), name]);
    const callees = byName.get(name)!.calls.filter(({ to, isBackground }) => isBackground !== true && byName.has(to));
    const height = Math.max(-1, ...callees.map(({ to }) => heightOf(to, [...above, name]))) + 1;
    heights.set(name, height);
    return height;
  };
  const rounds: Name[][] = [];
  for (const { name } of services) (rounds[heightOf(name, [])] ??= []).push(name);
  return rounds.toReversed();
}

/** The order in which services are spawned and reported: callees before callers. */
export function startOrder<Name extends string>(services: readonly Caller<Name>[]): Name[] {
  return drainRounds(services).toReversed().flat();
}

interface CheckedCaller {
  readonly name: string;
  readonly calls: readonly {
    readonly to: string;
    readonly scopes: readonly Scope[];
    readonly purpose?: string;
    readonly isBackground?: boolean;
  }[];
}

/** Throws if the table is invalid: a duplicate name or capability file, a scope of another service, or a cycle. */
export function checkTable(table: readonly CheckedCaller[]): void {
  const names = table.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) throw defect(`${twice} occurs twice`);
  for (const { name, calls } of table) {
    const files = new Set<string>();
    for (const { to, scopes, purpose } of calls) {
      if (to === name) throw defect(`${name} calls itself`);
      const foreign = scopes.find((scope) => !isService(to) || scopeService(scope) !== to);
      if (foreign !== undefined) throw defect(`${name} calls ${to} with ${foreign}, a scope of another service`);
      const file = `${to}-${purpose ?? ''}`;
      if (files.has(file)) throw defect(`${name} calls ${to} twice: give each call a purpose`);
      files.add(file);
    }
  }
  drainRounds(table);
}

function cycle(names: readonly string[]): CliError {
  return defect(`${names.join(' calls ')}: a cycle has no drain order; mark a call as background`);
}

function defect(message: string): CliError {
  return new CliError('internal', `invalid service table: ${message}`);
}
