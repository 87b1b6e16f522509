import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.AcidHouseKeeperService;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * A Hive metastore that listens at the loopback address alone, as its own main program does not.
 *
 * Arguments: its directory, its port, and the seconds after which it ends a lock.
 */
public class HiveMetastore {
    public static void main(String[] args) throws Exception {
        Thread.currentThread().setContextClassLoader(HiveMetastore.class.getClassLoader());
        Configuration conf = configuration(args[0], args[2]);
        TxnDbUtil.setConfValues(conf);
        TxnDbUtil.prepDb(conf);  // tables of locks, which the object mapper does not make

        AcidHouseKeeperService keeper = new AcidHouseKeeperService();
        keeper.setConf(conf);
        Executors.newSingleThreadScheduledExecutor()
            .scheduleWithFixedDelay(keeper, 1, 1, TimeUnit.SECONDS);
        IHMSHandler handler = RetryingHMSHandler.getProxy(
            conf, new HiveMetaStore.HMSHandler("roquet", conf, false), true);
        InetSocketAddress address =
            new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(args[1]));
        TThreadPoolServer server = new TThreadPoolServer(
            new TThreadPoolServer.Args(new TServerSocket(address))
                .processor(new TSetIpAddressProcessor<>(handler)));
        System.out.println("ready");
        server.serve();
    }

    private static Configuration configuration(String home, String lockSeconds) {
        Configuration conf = MetastoreConf.newMetastoreConf();
        conf.setClassLoader(HiveMetastore.class.getClassLoader());
        conf.set("fs.s3.impl", Bucket.class.getName());
        conf.set("javax.jdo.option.ConnectionURL",
            "jdbc:derby:;databaseName=" + home + "/derby;create=true");
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("metastore.schema.verification", "false");
        conf.set("metastore.warehouse.dir", "file://" + home + "/warehouse");
        conf.set("metastore.txn.timeout", lockSeconds + "s");
        // The classes that are set otherwise are in jars of Hive's query engine.
        conf.set("metastore.expression.proxy",
            "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy");
        conf.set("metastore.task.threads.always",
            "org.apache.hadoop.hive.metastore.events.EventCleanerTask");
        return conf;
    }

    /** The file system of s3 URLs: it makes no directory, and has all. */
    public static class Bucket extends RawLocalFileSystem {
        private URI name;

        @Override
        public void initialize(URI name, Configuration conf) throws IOException {
            super.initialize(name, conf);
            this.name = name;
        }

        @Override
        public URI getUri() {
            return name == null ? URI.create("s3:///") : URI.create("s3://" + name.getAuthority());
        }

        @Override
        public boolean mkdirs(Path path, FsPermission permission) {
            return true;
        }

        @Override
        public boolean mkdirs(Path path) {
            return true;
        }

        @Override
        public FileStatus getFileStatus(Path path) {
            return new FileStatus(0, true, 1, 0, 0, path);
        }
    }
}
