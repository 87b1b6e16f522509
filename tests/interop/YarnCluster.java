import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A YARN of one resource manager and two node managers, until its input ends. */
public class YarnCluster {
    public static void main(String[] args) throws Exception {
        YarnConfiguration conf = new YarnConfiguration();
        conf.setInt("yarn.scheduler.minimum-allocation-mb", 256);
        conf.setInt("yarn.nodemanager.resource.memory-mb", 3072);
        conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        conf.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        conf.set(
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage",
            "100");
        conf.set(
            "yarn.resourcemanager.scheduler.class",
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
        MiniYARNCluster cluster = new MiniYARNCluster("roquet", 2, 1, 1);
        cluster.init(conf);
        cluster.start();
        try (OutputStream out = new FileOutputStream(args[0] + "/yarn-site.xml")) {
            cluster.getConfig().writeXml(out);
        }
        System.out.println("ready");
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
