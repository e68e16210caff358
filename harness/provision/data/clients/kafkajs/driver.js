// Transactional producers of kafkajs, driven by lines on standard input; each line gets one line as its answer.
//
// docs/matrix.md describes the commands. The answer is "ok", "error NAME MESSAGE" or "unsupported MESSAGE".
'use strict'

const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const producers = {}
const transactions = {}

class Unsupported extends Error {}

async function carryOut(words) {
  const [command, name, ...rest] = words
  switch (command) {
    case 'open': {
      const [bootstrap, transactionalId, clientId, timeoutMs] = rest
      const kafka = new Kafka({ clientId, brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
      // kafkajs requires the first two settings of a transactional producer.
      producers[name] = kafka.producer({
        idempotent: true,
        maxInFlightRequests: 1,
        transactionalId,
        transactionTimeout: Number(timeoutMs),
      })
      return
    }
    case 'init':
      return producers[name].connect()
    case 'begin':
      // The first transaction of a producer initialises the transactional id.
      transactions[name] = await producers[name].transaction()
      return
    case 'commit':
      return transactions[name].commit()
    case 'abort':
      return transactions[name].abort()
    case 'send': {
      const [topic, partition, ...values] = rest
      // kafkajs puts all messages of a call into one batch for each partition.
      for (const value of values) {
        await transactions[name].send({ topic, messages: [{ value, partition: Number(partition) }] })
      }
      return
    }
    case 'offset': {
      const [consumerGroupId, topic, partition, offset, consumer] = rest
      if (consumer) break
      const topics = [{ topic, partitions: [{ partition: Number(partition), offset }] }]
      return transactions[name].sendOffsets({ consumerGroupId, topics })
    }
    case 'close':
      return producers[name].disconnect()
  }
  throw new Unsupported('sendOffsets of kafkajs takes no group metadata')
}

function answer(failure) {
  const message = String(failure.message).replaceAll('\n', ' ')
  if (failure instanceof Unsupported) return `unsupported ${message}`
  const cause = failure.cause && failure.cause.type ? failure.cause : failure
  return `error ${cause.type || failure.name} ${message}`
}

async function main() {
  console.log('ok')
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      await carryOut(line.split(' '))
      console.log('ok')
    } catch (failure) {
      console.log(answer(failure))
    }
  }
  process.exit(0)
}

main()
