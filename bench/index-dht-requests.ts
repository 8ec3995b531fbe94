/**
 * One request of the DHT on a kept stream, compared with `network.sendRequest` of kad-dht, which opens a stream for each request.
 * `node bench/index-dht-requests.ts [--quick]`
 *
 * Bar: 0.35x of the CPU time. Both ends run in this process, so the figures contain the work of the peer that answers. Its
 * routing table holds one peer, or 20: then the answers name 20 closer peers.
 */
import { peerIdFromString } from '@libp2p/peer-id';
import { NEVER } from '@ron/kernel';
import type { Libp2pPeers } from '../services/index/src/dht/libp2p/libp2p-peers.ts';
import { keyOf, openNode, refOf } from '../services/index/src/dht/libp2p/testing/test-node.ts';
import { measure, quick, report, type Case } from './lib.ts';

const REQUESTS = quick ? 100 : 300;
const REPEATS = quick ? 3 : 5;
const key = keyOf('object');

interface StockNetwork {
  sendRequest(to: unknown, message: object, options: object): AsyncGenerator<{ name: string }>;
}

async function cpu_us(run: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  for (let at = 0; at < REQUESTS; at++) await run();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / REQUESTS;
}

async function viaSendRequest(asker: Libp2pPeers, answerer: Libp2pPeers): Promise<void> {
  const network = asker.node.services.kad.network as StockNetwork;
  const path = { index: 0, queued: 0, running: 0, total: 0 };
  const to = peerIdFromString(answerer.self);
  let last = '';
  for await (const { name } of network.sendRequest(to, { type: 'GET_PROVIDERS', key }, { signal: NEVER, path }))
    last = name;
  if (last !== 'PEER_RESPONSE') throw new Error(`no answer: ${last}`);
}

async function compare(peers: number): Promise<Case[]> {
  const nodes = await Promise.all(Array.from({ length: peers + 1 }, async () => (await openNode()).peers));
  const [asker, answerer, ...others] = nodes as [Libp2pPeers, Libp2pPeers, ...Libp2pPeers[]];
  for (const node of [asker, ...others]) await node.getProviders(refOf(answerer), key, NEVER);
  while (answerer.known < peers) await new Promise((resolve) => void setTimeout(resolve, 10));
  const kept = (): Promise<unknown> => asker.getProviders(refOf(answerer), key, NEVER);
  const stock = (): Promise<unknown> => viaSendRequest(asker, answerer);
  const name = `GET_PROVIDERS, ${peers} closer peer${peers === 1 ? '' : 's'}`;
  let stock_us = 0;
  return [
    { name: `${name}, network.sendRequest`, unit: 'us/request', run: async () => (stock_us = await cpu_us(stock)) },
    { name: `${name}, kept stream`, unit: 'us/request', run: () => cpu_us(kept) },
    {
      name: `${name}, kept stream`,
      unit: 'x of sendRequest',
      bar: 0.35,
      run: async () => {
        // Alternating, so that both see the same load of the machine.
        stock_us = await cpu_us(stock);
        return (await cpu_us(kept)) / stock_us;
      },
    },
  ];
}

const rows = [];
for (const peers of [1, 20]) rows.push(...(await measure(await compare(peers), REPEATS)));
report('index-dht-requests', 'Requests of the DHT', rows);
process.exit(process.exitCode ?? 0);
