/** `ron config`: prints or checks the configuration of the services. */
import { ConfigError, formatProblem, loadConfig, renderConfigToml } from '@ron/config';
import { readFile } from 'node:fs/promises';
import { BASE_PORT_DEFAULT } from '@ron/proto';
import { usage } from '../args.ts';
import { command, type Invocation } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { homeOf, inAmnesia } from '../home.ts';
import { parsePort, plan, PLAN_OPTIONS, type Planned } from '../up/plan.ts';
import { SERVICE_TABLE } from '../up/table/services.ts';

type ConfigInvocation = Invocation<typeof PLAN_OPTIONS>;

export default command({
  name: 'config',
  usage: 'config print|check [--config FILE] [--set SERVICE.KEY=VALUE ...]',
  about:
    'print shows the configuration that `ron up` would use with the same flags, as TOML. check lists all problems in it.\n' +
    'Neither starts a service.',
  options: PLAN_OPTIONS,
  args: [1, 1],
  words: ['print', 'check'],
  examples: {
    'ron config print > ron.toml': 'write every key with its value and description',
    'ron config check --config ron.toml': 'check it before `ron up --config ron.toml`',
  },
  async run(invocation) {
    const [verb] = invocation.args;
    if (verb !== 'print' && verb !== 'check')
      throw usage({ name: 'config' }, 'expected `config print` or `config check`');
    const { io } = invocation;
    const loaded = await load(invocation);
    if (verb === 'check') {
      const names = loaded.map(({ name }) => name);
      return io.result(`Configuration is valid (${names.join(', ')})`, { ok: true, services: names });
    }
    const tables = loaded.map(({ name, toml }) => `[${name}]\n${toml}`);
    return io.result(tables.join('\n').trimEnd(), Object.fromEntries(loaded.map(({ name, config }) => [name, config])));
  },
});

interface Loaded {
  readonly name: string;
  readonly config: unknown;
  readonly toml: string;
}

async function load({ values, io }: ConfigInvocation): Promise<Loaded[]> {
  const place = {
    home: values.amnesia === true ? inAmnesia(homeOf(values, io)) : homeOf(values, io),
    base_port: parsePort(values['base-port'], BASE_PORT_DEFAULT),
    amnesia: values.amnesia === true,
    degraded: values.degraded === true,
  };
  const services = await plan({ ...values, place, table: SERVICE_TABLE, env: io.env });
  const problems: string[] = [];
  const loaded: Loaded[] = [];
  for (const service of services) {
    try {
      loaded.push(await loadService(service, values.config, io.env));
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      problems.push(...error.problems.map((problem) => `[${service.entry.name}] ${formatProblem(problem)}`));
    }
  }
  if (problems.length === 0) return loaded;
  throw new CliError('config', `configuration is invalid:\n  ${problems.join('\n  ')}`);
}

async function loadService(
  { entry, flags }: Planned,
  path: string | undefined,
  env: ConfigInvocation['io']['env'],
): Promise<Loaded> {
  const schema = await entry.schema();
  const config = loadConfig({
    schema,
    flags: flags.filter((flag) => !/^--config(-table)?=/.test(flag)),
    env,
    env_prefix: `RON_${entry.name.toUpperCase()}_`,
    file: path === undefined ? undefined : { path, text: await readText(path), table: entry.name },
  });
  return { name: entry.name, config, toml: renderConfigToml(schema, config) };
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new CliError('config', `cannot read ${path} (${systemCode(error) ?? String(error)})`);
  }
}
