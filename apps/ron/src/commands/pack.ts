/** `ron pack`: adds, lists, removes and verifies packs of map tiles. */
import { command } from '../command.ts';
import { confirm } from '../confirm.ts';
import { packNameArg, withEdge } from '../edge/edge-service.ts';
import { PACK_OPTIONS, type PackInvocation } from '../edge/pack-options.ts';
import { packTable } from '../edge/pack-text.ts';
import { verbLines, verbOf, type VerbUsage } from '../verbs.ts';

interface Verb extends VerbUsage {
  run(invocation: PackInvocation, args: readonly string[]): Promise<void>;
}

const VERBS: Readonly<Record<string, Verb>> = {
  add: {
    args: 'FILE|ADDRESS',
    about: 'uploads a PMTiles or MBTiles file, or takes an object of storage; edge verifies it before it serves it',
    run: async (invocation, [source]) => (await import('../edge/add-pack.ts')).addPack(invocation, source!),
  },
  ls: { args: '', about: 'prints the packs, and the files that cannot be served with the reason', run: list },
  rm: { args: 'NAME', about: 'removes a pack and its file', run: remove },
  verify: {
    args: 'NAME|FILE',
    about: 'reads a pack and checks every byte against its address; a file against --expect, or the pack with its name',
    run: async (invocation, [target]) => (await import('../edge/verify-pack.ts')).verifyPack(invocation, target!),
  },
};

export default command({
  name: 'pack',
  usage: `pack ${Object.keys(VERBS).join('|')} [ARGUMENTS]`,
  about: [
    'Manages the packs of map tiles that edge serves. A replaced pack is swapped without a failed request.',
    ...verbLines(VERBS),
    'Exit codes: 65 if a pack is refused or does not match its address, 66 if it does not exist.',
  ].join('\n'),
  options: PACK_OPTIONS,
  args: [1, 2],
  words: Object.keys(VERBS),
  examples: {
    'ron pack add planet.pmtiles': 'serve it as pack planet',
    'ron pack add new.pmtiles --name planet': 'replace the pack planet',
    'ron pack add b3:... --name planet': 'serve an object of storage',
    'ron pack add planet.pmtiles --expect b3:...': 'refuse other bytes',
    'ron pack ls --json': '{"packs":[...],"bad":[...]}',
    'ron pack verify planet': 'check every byte that edge serves',
    'ron pack rm planet --yes': 'remove it',
  },
  async run(invocation) {
    const { verb, args } = verbOf('pack', VERBS, invocation.args);
    await verb.run(invocation, args);
  },
});

async function list({ values, io, signal }: PackInvocation): Promise<void> {
  const found = await withEdge(values, io, signal, (edge) => edge.packs({ signal }));
  io.result(packTable(found), found);
}

async function remove(invocation: PackInvocation, [text]: readonly string[]): Promise<void> {
  const { values, io, signal } = invocation;
  const name = packNameArg(text!);
  await confirm(invocation, 'pack', `Pack ${name} and its file will be deleted.`);
  await withEdge(values, io, signal, (edge) => edge.removePack(name, { signal }));
  io.result(`removed ${name}`, { name, removed: true });
}
