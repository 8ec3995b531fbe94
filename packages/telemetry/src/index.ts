export * from './log-sink.ts';
export * from './log.ts';
export * from './metrics.ts';
export * from './process-metrics.ts';
export * from './series.ts';
