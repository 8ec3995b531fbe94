/**
 * Mermaid drawings of a service for `docs/concurrency.md`: its tasks and channels, its requests, and its shutdown.
 *
 * Contract: everything is derived from the declaration. A channel is drawn from its senders to its receivers; every name
 * there is a declared task or actor, `listener` or `supervisor`. Other names are listed by `drawingProblems`.
 *
 *     renderDrawings(concurrency); // '### storage: tasks and channels\n\n```mermaid\nflowchart LR\n...'
 */
import type { Channel, Concurrency, RequestPath } from '@ron/service';

/** Every service has these. */
const COMMON_ACTORS = ['listener', 'supervisor'];

export function renderDrawings(declaration: Concurrency): string {
  const { service } = declaration;
  const sections = [
    section(
      `${service}: tasks and channels`,
      'Boxes are tasks, rounded boxes other code, hexagons channels with their capacity.',
      flowchart(declaration),
    ),
    ...Object.entries(declaration.requests ?? {}).map(([route, path]) =>
      section(`${service}: ${route}`, 'One branch is taken.', requestSequence(declaration, route, path)),
    ),
  ];
  if (declaration.drain !== undefined) {
    sections.push(
      section(
        `${service}: shutdown`,
        'The supervisor waits for each reply before its next message.',
        shutdownSequence(declaration),
      ),
      section(`${service}: states of a shutdown`, 'A second signal aborts at once.', drainStates(declaration)),
    );
  }
  return sections.join('\n\n');
}

/** Ends of channels and steps, queues and deadlines that the declaration does not have. */
export function drawingProblems(declaration: Concurrency): string[] {
  const { service, channels, deadlines, requests = {} } = declaration;
  const known = new Set([
    ...COMMON_ACTORS,
    ...Object.keys(declaration.tasks),
    ...Object.keys(declaration.actors ?? {}),
  ]);
  const unknown = (where: string, names: readonly string[]): string[] =>
    names
      .filter((name) => !known.has(name))
      .map((name) => `${service}: ${where} names ${name}, which is neither a task nor an actor`);
  const undeclared = (where: string, kind: string, table: object, name: string | undefined): string[] =>
    name === undefined || Object.hasOwn(table, name) ? [] : [`${service}: ${where} names an unknown ${kind} ${name}`];
  return [
    ...Object.entries(channels).flatMap(([name, { from, to }]) =>
      unknown(`channel ${name}`, [...namesIn(from), ...namesIn(to)]),
    ),
    ...Object.entries(requests).flatMap(([route, { queue, deadline, steps }]) => [
      ...undeclared(route, 'channel', channels, queue),
      ...undeclared(route, 'deadline', deadlines, deadline),
      ...unknown(
        route,
        steps.flatMap(([from, to]) => [from, to]),
      ),
    ]),
  ];
}

function flowchart(declaration: Concurrency): string[] {
  const { channels, tasks } = declaration;
  const ends = Object.values(channels).flatMap(({ from, to }) => [...namesIn(from), ...namesIn(to)]);
  const actors = [...new Set(['supervisor', ...ends])].filter((name) => !Object.hasOwn(tasks, name));
  return [
    'flowchart LR',
    ...actors.map((name) => `  ${name}(["${spaced(name)}"])`),
    '  subgraph tasks',
    ...Object.entries(tasks).map(([name, { count }]) => `    ${name}["${spaced(name)}${countOf(count)}"]`),
    '  end',
    ...Object.entries(channels).map(([name, channel]) => `  ${idOf(name)}{{"${name}<br>${sizeOf(channel)}"}}`),
    ...Object.entries(channels).map(([name, { from, to }]) => {
      const [senders, receivers] = [from, to].map((text) => namesIn(text).join(' & '));
      return `  ${senders} --> ${idOf(name)} --> ${receivers}`;
    }),
    '  supervisor -. "start, stop, abort" .-> tasks',
  ];
}

function requestSequence(declaration: Concurrency, route: string, path: RequestPath): string[] {
  const { queue, steps, shortcut, answer } = path;
  const channel = queue === undefined ? undefined : declaration.channels[queue];
  const worker = channel === undefined ? 'listener' : channel.to;
  const budget = `${declaration.deadlines[path.deadline]?.ms} ms`;
  const parties = new Set(['listener', worker, ...steps.flatMap(([from, to]) => [from, to])]);
  const isReturned = steps.some(([from, to]) => from === worker && to === 'listener');
  return [
    'sequenceDiagram',
    '  participant client',
    ...[...parties].map((name) => `  participant ${name}`),
    `  client->>listener: ${route}`,
    '  alt refused by a guard, a limit or the capability check',
    '    listener-->>client: 4xx or 503 before the body is read',
    ...(shortcut === undefined ? [] : [`  else ${shortcut}`, '    listener-->>client: 200 or 206']),
    ...(channel === undefined ? [] : [`  else ${queue} is full`, '    listener-->>client: 429 busy with Retry-After']),
    `  else deadline ${path.deadline} (${budget}) passes`,
    '    listener-->>client: 504 timeout',
    '  else accepted',
    ...(channel === undefined ? [] : [`    listener->>${worker}: ${queue} (${sizeOf(channel)})`]),
    ...steps.map(([from, to, message], at) => `    ${from}${arrow(steps, at)}${to}: ${message}`),
    ...(channel === undefined || isReturned ? [] : [`    ${worker}-->>listener: result`]),
    `    listener-->>client: ${answer}`,
    '  end',
  ];
}

/** Dashed for a reply: an earlier step went the other way. */
function arrow(steps: RequestPath['steps'], at: number): string {
  const [from, to] = steps[at]!;
  const isReply = steps.slice(0, at).some(([asker, asked]) => asker === to && asked === from);
  return isReply ? '-->>' : '->>';
}

function shutdownSequence({ drain }: Concurrency): string[] {
  const { finishes, flushes, closes } = drain!;
  return [
    'sequenceDiagram',
    '  participant supervisor',
    '  participant listener',
    '  participant tasks',
    '  participant resources',
    '  supervisor->>listener: stop intake',
    '  Note over listener: /readyz and new work get 503',
    '  listener-->>supervisor: requests in flight are answered',
    '  supervisor->>tasks: stop',
    ...(finishes === undefined ? [] : [`  Note over tasks: ${finishes}`]),
    '  alt within drain_deadline',
    '    tasks-->>supervisor: ended',
    '  else drain_deadline has passed',
    '    supervisor->>tasks: abort, counted by kind',
    '  end',
    ...(flushes === undefined ? [] : [`  supervisor->>resources: persist ${flushes}`]),
    '  supervisor->>listener: cut remaining answers, counted',
    ...closes.map((resource) => `  supervisor->>resources: close ${resource}`),
    '  resources-->>supervisor: closed, or abandoned at the close deadline',
  ];
}

function drainStates({ drain }: Concurrency): string[] {
  const { finishes = 'finish tasks', closes } = drain!;
  const flushes = drain!.flushes === undefined ? '' : `persist ${drain!.flushes}, `;
  return [
    'stateDiagram-v2',
    '  [*] --> Running',
    '  Running --> Draining: SIGTERM, SIGINT or a critical task that stays down',
    '  state Draining {',
    '    [*] --> Requests',
    '    Requests: finish requests in flight',
    '    Requests --> Tasks',
    `    Tasks: ${finishes}`,
    '    Tasks --> [*]',
    '  }',
    '  Draining --> Closing: all ended',
    '  Draining --> Aborting: drain_deadline passes or a second signal',
    '  Aborting --> Closing: stragglers aborted and counted',
    `  Closing: ${flushes}close ${closes.join(', ')}`,
    '  Closing --> Stopped',
    '  Stopped --> [*]',
  ];
}

function section(title: string, legend: string, drawing: readonly string[]): string {
  return [`### ${title}`, '', legend, '', '```mermaid', ...drawing, '```'].join('\n');
}

const namesIn = (ends: string): string[] => ends.split(',').map((name) => name.trim());
const spaced = (name: string): string => name.replaceAll('_', ' ');
const countOf = (count: number): string => (count === 0 ? '<br>on demand' : count === 1 ? '' : ` × ${count}`);
/** A channel may have the name of a task. */
const idOf = (channel: string): string => `channel_${channel}`;
function sizeOf(channel: Channel): string {
  if (channel.kind === 'watch') return 'watch';
  return `${channel.kind === 'own' ? 'queue' : channel.kind}, ${channel.capacity}`;
}
