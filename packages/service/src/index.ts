export * from './process/exit-codes.ts';
export * from './process/process.ts';
export * from './runtime/declaration.ts';
export { ServiceRuntime, type RuntimeInit } from './runtime/runtime.ts';
export * from './shell/define.ts';
export * from './shell/rows.ts';
export { COMPILE_ONLY, runService, type RunInit } from './shell/run.ts';
export { startService, VERSION } from './shell/start.ts';
