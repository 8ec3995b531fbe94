import assert from 'node:assert/strict';
import { test } from 'node:test';
import { declareConcurrency } from '@ron/service';
import { drawingProblems, renderDrawings } from './concurrency-drawings.ts';

const base = {
  service: 'storage',
  channels: {
    work: { kind: 'work', capacity: 512, lanes: ['get'], from: 'listener', to: 'get_pool' },
    repair: { kind: 'mpsc', capacity: 8, policy: 'reject new', overflow: 'x', from: 'planner, engine', to: 'get_pool' },
    shutdown: { kind: 'watch', from: 'supervisor', to: 'get_pool, planner' },
  },
  tasks: {
    get_pool: { count: 4, criticality: 'critical', does: 'reads' },
    planner: { count: 1, criticality: 'important', does: 'plans' },
    scrub: { count: 0, criticality: 'optional', does: 'scrubs' },
  },
  locks: {},
  deadlines: { get: { ms: 2000, covers: 'a read' } },
  actors: { engine: 'volumes' },
  requests: {
    'GET /o/:addr': {
      queue: 'work',
      deadline: 'get',
      shortcut: 'in RAM',
      steps: [
        ['get_pool', 'engine', 'read'],
        ['engine', 'get_pool', 'bytes'],
      ],
      answer: '200',
    },
  },
  drain: { finishes: 'the pool finishes', flushes: 'the log', closes: ['volumes', 'keys'] },
} as const;
const declared = declareConcurrency(base);

/** The lines of one drawing, without indentation. */
function drawing(title: string, of = renderDrawings(declared)): string[] {
  const [, code = ''] = of.split(`### storage: ${title}\n`)[1]?.split('```') ?? [];
  return code.split('\n').map((line) => line.trim());
}

test('the flowchart has every task and channel, and an edge for each sender and receiver', () => {
  const lines = drawing('tasks and channels');
  assert.deepEqual(lines.slice(0, 2), ['mermaid', 'flowchart LR']);
  for (const line of [
    'get_pool["get pool × 4"]',
    'planner["planner"]',
    'scrub["scrub<br>on demand"]',
    'engine(["engine"])',
    'channel_work{{"work<br>work, 512"}}',
    'listener --> channel_work --> get_pool',
    'planner & engine --> channel_repair --> get_pool',
    'supervisor --> channel_shutdown --> get_pool & planner',
  ]) {
    assert.ok(lines.includes(line), line);
  }
});

test('a request passes its queue and its steps, and a full queue and a deadline are drawn', () => {
  const lines = drawing('GET /o/:addr');
  const at = (line: string): number => {
    assert.ok(lines.includes(line), `${line} in\n${lines.join('\n')}`);
    return lines.indexOf(line);
  };
  const order = [
    'client->>listener: GET /o/:addr',
    'else in RAM',
    'else work is full',
    'else deadline get (2000 ms) passes',
    'listener->>get_pool: work (work, 512)',
    'get_pool->>engine: read',
    'engine-->>get_pool: bytes',
    'get_pool-->>listener: result',
    'listener-->>client: 200',
  ].map(at);
  assert.deepEqual(
    order,
    order.toSorted((a, b) => a - b),
  );
});

test('a shutdown persists results, then closes the declared resources in order, and has the states of a drain', () => {
  const sequence = drawing('shutdown');
  const closes = sequence.filter((line) => line.startsWith('supervisor->>resources'));
  assert.deepEqual(closes, [
    'supervisor->>resources: persist the log',
    'supervisor->>resources: close volumes',
    'supervisor->>resources: close keys',
  ]);
  const states = drawing('states of a shutdown');
  for (const line of [
    '[*] --> Running',
    'Closing: persist the log, close volumes, keys',
    'Tasks: the pool finishes',
    'Aborting --> Closing: stragglers aborted and counted',
  ]) {
    assert.ok(states.includes(line), line);
  }
});

test('a service without requests and drain has the flowchart only', () => {
  const { requests: _, drain: __, ...rest } = base;
  const text = renderDrawings(declareConcurrency({ ...rest, deadlines: { get: { ms: 1, covers: '' } } }));
  assert.deepEqual(text.match(/^### .*$/gm), ['### storage: tasks and channels']);
});

test('names that are not declared are problems', () => {
  assert.deepEqual(drawingProblems(declared), []);
  const wrong = declareConcurrency({
    ...base,
    channels: { ...base.channels, config: { kind: 'watch', from: 'config watch', to: 'planner' } },
    requests: { 'GET /x': { queue: 'wrok', deadline: 'gte', steps: [['get_pool', 'disk', 'read']], answer: '200' } },
  });
  assert.deepEqual(drawingProblems(wrong), [
    'storage: channel config names config watch, which is neither a task nor an actor',
    'storage: GET /x names an unknown channel wrok',
    'storage: GET /x names an unknown deadline gte',
    'storage: GET /x names disk, which is neither a task nor an actor',
  ]);
});
