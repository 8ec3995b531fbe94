/** `ron edge`: shows the state of edge, explains an asset, and purges the cache. */
import type { EdgePurgeDto } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { assetKeyArg, withEdge } from '../edge/edge-service.ts';
import { edgeStatus, statusText } from '../edge/edge-status.ts';
import { whyText } from '../edge/why-text.ts';
import { verbLines, verbOf, type VerbUsage } from '../verbs.ts';

const options = {
  prefix: { type: 'string', value: 'PREFIX', doc: 'purge: all assets whose keys begin with it.' },
  host: { type: 'string', value: 'HOST[:PORT]', doc: 'purge: all assets of an origin.' },
  ...CONNECTION_OPTIONS,
} as const;

type EdgeInvocation = Invocation<typeof options>;

interface Verb extends VerbUsage {
  run(invocation: EdgeInvocation, args: readonly string[]): Promise<void>;
}

const VERBS: Readonly<Record<string, Verb>> = {
  status: { args: '', about: 'prints mode, gates, packs, cache, hits and fills', run: status },
  why: {
    args: 'PATH',
    about:
      'explains an asset: where it is served from, its freshness, and the origin and certificate that it came from',
    run: why,
  },
  purge: {
    args: '[KEY]',
    about: 'removes cached assets: one key, or all with --prefix or --host; packs stay',
    run: purge,
  },
};

export default command({
  name: 'edge',
  usage: 'edge status | edge why PATH | edge purge KEY|--prefix PREFIX|--host HOST',
  about: [
    'Shows and manages the delivery of assets. A key is the path below /edge/assets/, such as live/tiles.example.org/1/0/0.png.',
    ...verbLines(VERBS),
  ].join('\n'),
  options,
  args: [1, 2],
  words: Object.keys(VERBS),
  examples: {
    'ron edge status': 'print the state of edge',
    'ron edge why live/tiles.example.org/1/0/0.png': 'print host, dialled address, certificate key and ETag of a fill',
    'ron edge why http://127.0.0.1:7103/edge/assets/pack/planet/0/0/0.png': 'accept a URL too',
    'ron edge purge live/tiles.example.org/1/0/0.png': 'remove one asset',
    'ron edge purge --host tiles.example.org': 'remove all assets of an origin',
    'ron edge purge --prefix live/tiles.example.org/1/': 'remove all keys with a prefix',
  },
  async run(invocation) {
    const { verb, args } = verbOf('edge', VERBS, invocation.args);
    await verb.run(invocation, args);
  },
});

async function status({ values, io, signal }: EdgeInvocation): Promise<void> {
  const found = await withEdge(values, io, signal, async (edge, resolved) =>
    edgeStatus(resolved, await edge.packs({ signal }), signal),
  );
  io.result(statusText(found), found);
}

async function why({ values, io, signal }: EdgeInvocation, [path]: readonly string[]): Promise<void> {
  const found = await withEdge(values, io, signal, (edge) => edge.why(assetKeyArg(path!), { signal }));
  io.result(whyText(found), found);
}

async function purge(invocation: EdgeInvocation, [key]: readonly string[]): Promise<void> {
  const { values, io, signal } = invocation;
  const selection = selectionOf(invocation, key);
  const { removed } = await withEdge(values, io, signal, (edge) => edge.purge(selection, { signal }));
  io.result(removed === 1 ? 'removed 1 asset' : `removed ${removed} assets`, { ...selection, removed });
}

function selectionOf({ values: { prefix, host } }: EdgeInvocation, key: string | undefined): EdgePurgeDto {
  const given = [key, prefix, host].filter((each) => each !== undefined);
  if (given.length !== 1) throw usage({ name: 'edge' }, 'Specify a key, --prefix or --host');
  if (key !== undefined) return { key: assetKeyArg(key) };
  return prefix === undefined ? { host: host! } : { prefix: assetKeyArg(prefix) };
}
