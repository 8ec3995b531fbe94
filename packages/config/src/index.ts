export * from './config.ts';
export * from './docs.ts';
export type { ConfigFile, ConfigProblem } from './given.ts';
export { envName, formatProblem } from './given.ts';
export * from './keys.ts';
export * from './nearest.ts';
export * from './source.ts';
export * from './units.ts';
