/** Hosts without the network key that open connections and send nothing. */
import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { after, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { keyOf, openNode, refOf } from './testing/test-node.ts';

const failures: unknown[] = [];
process.on('unhandledRejection', (error) => failures.push(error));
after(() => assert.deepEqual(failures, [], 'no rejection stayed unhandled'));

/** Open sockets of strangers to one port; the members use 127.0.0.1. */
class Strangers implements Disposable {
  readonly #port: number;
  readonly #sockets = new Set<Socket>();

  constructor({ listening }: { listening: readonly string[] }) {
    this.#port = Number(/\/tcp\/(\d+)/.exec(listening[0]!)![1]);
  }

  get open(): number {
    return [...this.#sockets].filter(({ readyState }) => readyState === 'open').length;
  }

  get opening(): number {
    return [...this.#sockets].filter(({ readyState }) => readyState === 'opening').length;
  }

  connect(localAddress: string, count: number): void {
    for (let i = 0; i < count; i++) {
      const socket = connect({ port: this.#port, host: '127.0.0.1', localAddress });
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => this.#sockets.delete(socket));
      socket.resume();
    }
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

test('silent connections of one host are limited, and lock out no member', async () => {
  await using node = (await openNode()).peers;
  await using member = (await openNode()).peers;
  using strangers = new Strangers(node);
  strangers.connect('127.0.0.2', 64);
  await eventually('16 of 64 stay open', () => strangers.opening === 0 && strangers.open === 16);
  assert.deepEqual(await member.findNode(refOf(node), keyOf('x'), NEVER), []);
  assert.equal(strangers.open, 16);
  // Those that end make room.
  strangers[Symbol.dispose]();
  await eventually('all are closed', () => strangers.opening + strangers.open === 0);
  const isAccepted = async (): Promise<boolean> => {
    strangers.connect('127.0.0.2', 1);
    await eventually('the connection is decided', () => strangers.opening === 0);
    await member.findNode(refOf(node), keyOf('y'), NEVER);
    return strangers.open > 0;
  };
  await eventually('one is accepted', isAccepted, 20_000);
});

test('silent connections of many hosts: the oldest are cut, members still join', async () => {
  await using node = (await openNode()).peers;
  await using member = (await openNode()).peers;
  using strangers = new Strangers(node);
  for (let host = 1; host <= 36; host++) strangers.connect(`127.0.1.${host}`, 16);
  await eventually('512 of 576 stay open', () => strangers.opening === 0 && strangers.open === 512);
  assert.deepEqual(await member.findNode(refOf(node), keyOf('x'), NEVER), []);
});

test('a silent connection ends after twice the time to connect', async () => {
  await using node = (await openNode({ dial_ms: 100 })).peers;
  using strangers = new Strangers(node);
  strangers.connect('127.0.0.2', 16);
  await eventually('all are cut', () => strangers.opening + strangers.open === 0);
});
