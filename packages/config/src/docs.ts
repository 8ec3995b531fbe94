/**
 * A config table as people read it: Markdown for the docs, TOML for a file to start from.
 *
 * Contract: both are made from the table that the service runs with. The TOML of a config loads to the same config.
 * A secret's value is in neither.
 */
import { envName } from './given.ts';
import { configValue, type Config, type ConfigSchema, type KeyTable } from './config.ts';

/** A Markdown table of the keys of a service. */
export function renderConfigDocs<K extends KeyTable>(schema: ConfigSchema<K>, env_prefix: string): string {
  const rows = Object.entries(schema.keys).map(([name, key]) => {
    const fallback = key.secret ? 'secret' : key.fallback === undefined ? 'required' : code(defaultText(key));
    const reload = key.reloadable ? 'yes' : 'restart';
    return `| \`${name}\` | ${cell(fallback)} | ${cell(key.expected)} | ${reload} | \`${envName(env_prefix, name)}\` | ${cell(key.doc)} |`;
  });
  return [
    '| Key | Default | Accepts | Reload | Variable | Description |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

/** The whole config as a TOML document with the docs as comments. Secrets and unset keys are commented out. */
export function renderConfigToml<K extends KeyTable>(schema: ConfigSchema<K>, config: Config<K>): string {
  const lines: string[] = [];
  // A dotted key may stand at the top level, so no table headers are needed and the order can stay as declared.
  for (const [name, key] of Object.entries(schema.keys)) {
    lines.push(`# ${key.doc} Accepts ${key.expected}.`);
    const value = configValue(config, name);
    if (key.secret) lines.push(`# ${name} = "..."`);
    else if (value === undefined) lines.push(`# ${name} =`);
    else lines.push(`${name} = ${key.toToml(value)}`);
  }
  return `${lines.join('\n')}\n`;
}

function defaultText(key: KeyTable[string]): string {
  const value = key.fallback?.value;
  return value === undefined ? '' : key.toToml(value);
}

const code = (text: string): string => (text === '' ? 'none' : `\`${text}\``);

/** A table cell is one line, and a bar would end it. */
const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');
